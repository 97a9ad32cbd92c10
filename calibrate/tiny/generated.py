"""Generated tasks of the training text: maths, table rewriting, stories, dialogue and copying.

Their rules differ in how far the next token is determined, and so do the acceptances: a table is rewritten from what
stands in the prompt, a story only follows a grammar. All randomness comes from string seeds, so a text depends on its
task and number alone.
"""

from __future__ import annotations

import json
import string
from collections.abc import Callable
from dataclasses import dataclass
from random import Random


@dataclass(frozen=True)
class Document:
    """One text: what is given, and what the model has to write. The prompt ends before white space."""

    task: str
    prompt: str
    completion: str

    @property
    def text(self) -> str:
        return self.prompt + self.completion


def _words(line: str) -> tuple[str, ...]:
    return tuple(line.split())


NAMES = _words(
    "Ada Amir Anna Ben Bruno Carla Chen Clara Dan Dora Elif Emil Eva Felix Fatima Gus Hana Hugo Ida Ivan Jana Jo Kai "
    "Kim Lars Lena Leo Lina Mara Max Mia Nils Nina Noor Olga Omar Otto Pia Paul Rosa Rui Sam Sara Tom Tara Uma Vera "
    "Wim Yara Zoe"
)
THINGS = _words(
    "apple book brick button candle card chair coin cup egg flower hat key lamp letter map marble nail needle note "
    "orange pear pencil plate ribbon ring rope shell shoe spoon stamp stone ticket tile toy"
)
PLACES = _words(
    "harbour garden forest market castle river mill library station bakery tower island valley school barn bridge lake "
    "kitchen museum attic"
)
ANIMALS = _words("fox owl bear cat dog crow goat hare mouse otter seal swan toad wolf bee heron")
ADJECTIVES = _words("old small red quiet tall green brave tired clever cold bright lonely golden strange gentle dusty")
CITIES = _words(
    "Oslo Lima Cairo Paris Quito Delhi Tokyo Rome Kyiv Accra Bern Dakar Hanoi Prague Riga Seoul Tunis Vienna"
)
COLOURS = _words("red blue green black white yellow brown grey pink purple")
JOBS = _words("baker pilot nurse farmer painter teacher sailor tailor driver lawyer singer miner")


def maths(random: Random) -> tuple[str, str]:
    """Word problems and sums with the steps written out."""
    name, other, thing = random.choice(NAMES), random.choice(NAMES), random.choice(THINGS)
    a, b, c = random.randint(2, 99), random.randint(2, 99), random.randint(2, 9)
    kind = random.randrange(6)
    if kind == 0:
        question = f"{name} has {a} {thing}s and finds {b} more. How many {thing}s does {name} have now?"
        steps = f"{a} + {b} = {a + b}. {name} has {a + b} {thing}s now."
    elif kind == 1:
        a, b = max(a, b) + 1, min(a, b)
        question = f"{name} has {a} {thing}s and gives {b} of them to {other}. How many {thing}s are left?"
        steps = f"{a} - {b} = {a - b}. There are {a - b} {thing}s left."
    elif kind == 2:
        question = f"There are {c} boxes with {a} {thing}s each. How many {thing}s are there in all?"
        tens, ones = a // 10 * 10, a % 10
        steps = f"{c} * {tens} = {c * tens}; {c} * {ones} = {c * ones}; {c * tens} + {c * ones} = {c * a}."
        steps += f" There are {c * a} {thing}s in all."
    elif kind == 3:
        question = f"{name} shares {a * c} {thing}s equally among {c} friends. How many does each friend get?"
        steps = f"{a * c} / {c} = {a}. Each friend gets {a} {thing}s."
    elif kind == 4:
        start, step = random.randint(1, 40), random.randint(2, 12)
        terms = [start + step * i for i in range(9)]
        question = f"Continue the sequence {', '.join(map(str, terms[:4]))}."
        steps = f"The step is {step}. {', '.join(map(str, terms[4:]))}."
    else:
        question = f"Compute {a} + {b} * {c}."
        steps = f"{b} * {c} = {b * c}; {a} + {b * c} = {a + b * c}. The result is {a + b * c}."
    return f"Question: {question}\nAnswer:", f" {steps}"


def table(random: Random) -> tuple[str, str]:
    """A table of records, rewritten in another layout."""
    columns: dict[str, Callable[[], str]] = {
        "name": lambda: random.choice(NAMES),
        "age": lambda: str(random.randint(18, 80)),
        "city": lambda: random.choice(CITIES),
        "job": lambda: random.choice(JOBS),
        "colour": lambda: random.choice(COLOURS),
        "item": lambda: random.choice(THINGS),
        "count": lambda: str(random.randint(1, 300)),
        "code": lambda: "".join(random.choices(string.ascii_uppercase, k=3)),
    }
    chosen = random.sample(list(columns), random.randint(2, 4))
    rows = [{column: columns[column]() for column in chosen} for _ in range(random.randint(2, 4))]
    comma = "\n".join(",".join(row.values()) for row in [dict(zip(chosen, chosen, strict=True)), *rows])
    bars = "\n".join(f"| {' | '.join(row.values())} |" for row in [dict(zip(chosen, chosen, strict=True)), *rows])
    lines = "\n".join("; ".join(f"{column}: {value}" for column, value in row.items()) for row in rows)
    objects = "\n".join(json.dumps(row) for row in rows)
    layouts = {"comma": comma, "bars": bars, "lines": lines, "JSON": objects}
    source, wanted = random.sample(list(layouts), 2)
    return f"Rewrite as {wanted}:\n{layouts[source]}\nResult:", f"\n{layouts[wanted]}"


def story(random: Random) -> tuple[str, str]:
    """A short story from a grammar: its hero, place and thing return, what happens is drawn."""
    hero, animal, friend = random.choice(NAMES), random.choice(ANIMALS), random.choice(NAMES)
    place, other, thing = random.choice(PLACES), random.choice(PLACES), random.choice(THINGS)
    how, what = random.choice(ADJECTIVES), random.choice(ADJECTIVES)
    opening = random.choice(
        (
            f"Once upon a time, a {how} {animal} named {hero} lived near the {place}.",
            f"{hero} the {animal} had always wanted to see the {place}.",
            f"In a {how} {place} there lived a {animal} whose name was {hero}.",
        )
    )
    middle = [
        f"One morning {hero} found a {what} {thing} on the way to the {other}.",
        f'"Whose {thing} is this?" asked {hero}, but nobody in the {place} knew.',
        f"Then {friend} came by and said that the {thing} belonged to the {random.choice(ANIMALS)} of the {other}.",
        f"{hero} hid the {thing} under the bridge and waited until the sun went down.",
        f"So {hero} and {friend} walked together to the {other}, and it began to {random.choice(('rain', 'snow'))}.",
        f"It was a {random.choice(ADJECTIVES)} night, and the {animal} was not afraid at all.",
        f'"Do not worry," said {friend}, "the {other} is not far from here."',
        f"They looked behind every {random.choice(THINGS)} and every {random.choice(THINGS)}, but found nothing.",
        f"At the {other} a {random.choice(ADJECTIVES)} {random.choice(ANIMALS)} was already waiting for them.",
    ]
    kept = sorted(random.sample(range(len(middle)), random.randint(3, 6)))
    ending = random.choice(
        (
            f"In the end {hero} kept the {thing}, and {friend} went home to the {other}.",
            f"And so the {thing} came back to the {place}, and everyone was happy.",
            f"From that day on {hero} and {friend} were the best of friends.",
        )
    )
    return opening, " " + " ".join([*(middle[i] for i in kept), ending])


def dialogue(random: Random) -> tuple[str, str]:
    """A conversation of two to four turns from templates."""
    name, city, place, thing = (random.choice(words) for words in (NAMES, CITIES, PLACES, THINGS))
    colour, hour, price = random.choice(COLOURS), random.randint(1, 12), random.randint(2, 90)
    turns = [
        (
            random.choice((f"Hello, my name is {name}.", f"Good morning, this is {name}.", f"Hi! I am {name}.")),
            random.choice((f"Hello {name}, how can I help you?", f"Nice to meet you, {name}. What can I do for you?")),
        ),
        (
            random.choice((f"I am looking for a {colour} {thing}.", f"Do you have a {thing} in {colour}?")),
            random.choice(
                (
                    f"Yes, we have a {colour} {thing} for {price} euros. Would you like to see it?",
                    f"I am sorry, the {colour} {thing} is sold out. It will be back at {hour} o'clock.",
                    f"We have two: a small {thing} for {price} euros and a large one for {price * 2} euros.",
                )
            ),
        ),
        (
            random.choice((f"How do I get to the {place} in {city}?", f"Where is the {place}? I am new in {city}.")),
            random.choice(
                (
                    f"Take the train to {city} and walk past the {random.choice(PLACES)}. The {place} is on the left.",
                    f"The {place} is next to the {random.choice(PLACES)}, about {hour} minutes from here.",
                    f"I would not walk to the {place} at this hour. There is a bus at {hour} o'clock.",
                )
            ),
        ),
        (
            random.choice((f"When does the {place} open?", f"Is the {place} open today?")),
            random.choice(
                (
                    f"The {place} opens at {hour} o'clock and closes at {hour + 8} o'clock.",
                    f"The {place} is closed today. Please come back tomorrow at {hour} o'clock.",
                )
            ),
        ),
    ]
    chosen = random.sample(turns, random.randint(2, 4))
    closing = random.choice(("Thank you, goodbye!", "Thanks a lot.", "That is very kind of you."))
    lines = [f"User: {said}\nAssistant: {answer}" for said, answer in chosen]
    lines.append(f"User: {closing}\nAssistant: {random.choice(('You are welcome', 'Goodbye'))}, {name}!")
    first = f"User: {chosen[0][0]}\nAssistant:"
    return first, "\n".join(lines).removeprefix(first)


def copy(random: Random) -> tuple[str, str]:
    """Words that follow no grammar, to be written again: as they are, with one replaced, or one per line."""
    length = random.randint(8, 24)
    invented = ["".join(random.choices(string.ascii_lowercase, k=random.randint(2, 6))) for _ in range(length)]
    words = [random.choice((*THINGS, *ANIMALS, *PLACES, *ADJECTIVES)) for _ in range(length)]
    source = random.choice((invented, words, [random.choice(pair) for pair in zip(invented, words, strict=True)]))
    kind = random.randrange(3)
    if kind == 0:
        return f"Repeat: {' '.join(source)}\nResult:", f" {' '.join(source)}"
    if kind == 1:
        old, new = random.choice(source), random.choice(COLOURS)
        replaced = [new if word == old else word for word in source]
        return f"Replace {old} by {new}: {' '.join(source)}\nResult:", f" {' '.join(replaced)}"
    return f"One per line: {' '.join(source)}\nResult:", "\n" + "\n".join(f"- {word}" for word in source)


TASKS: dict[str, Callable[[Random], tuple[str, str]]] = {
    "maths": maths,
    "table": table,
    "story": story,
    "dialogue": dialogue,
    "copy": copy,
}


def documents(task: str, characters: int) -> list[Document]:
    """Documents 0, 1, 2 ... of a task until they hold `characters` in all."""
    made: list[Document] = []
    length = 0
    while length < characters:
        prompt, completion = TASKS[task](Random(f"draftlab tiny {task} {len(made)}"))
        made.append(Document(task, prompt, completion))
        length += len(prompt) + len(completion)
    return made
