"""Export to GGUF, the files of llama.cpp."""
