"""Chat templates: how a conversation becomes one text."""

from dataclasses import dataclass


@dataclass(frozen=True)
class ChatTemplate:
    """What is known about a chat template: the named pieces that it adds to a tokenizer."""

    symbols: tuple[str, ...] = ()


CHAT_TEMPLATES = {
    "chatml": ChatTemplate(("<|im_start|>", "<|im_end|>")),
    "llama3": ChatTemplate(("<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>")),
    "zephyr": ChatTemplate(),  # ends turns with EOS, and marks them with text
}
OF_SOURCE = "source"  # the template that init.source has
