"""What is known about each word of the manual: one record a word, in the order of the manual.

A record says what the rest of the code asks about a choice; the mathematics is elsewhere, in a
table with the same words, and tests hold the two and the field's type together. Nothing here
imports jax or the manual: the manual's own properties ask records, and checks take a section of the
manual as it is.
"""
