"""Ways to draft: a model, the target without some layers, prompt lookup, an EAGLE-style layer. One file each."""
