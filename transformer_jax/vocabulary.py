"""The four reserved piece ids, set when a tokenizer is trained and asserted when one loads."""

PAD = 0
BOS = 1
EOS = 2
UNK = 3
RESERVED = 4
