"""Writes a tiny model with random weights, and a real vocabulary and chat template, as GGUF.

Its texts are noise, but the engine's templates, token counts, window and errors are real. The same
arguments always give the same file.

    python model.py VOCABULARY.gguf TEMPLATE.jinja OUT.gguf
"""

import sys
from pathlib import Path

import numpy
from gguf import GGMLQuantizationType, GGUFReader, GGUFWriter

BLOCKS, WIDTH, HEADS, HIDDEN = 2, 64, 4, 128
# The window in the model's metadata; the engine is started with a smaller one.
TRAINED = 131_072


def main(vocabulary, template, out):
    writer = GGUFWriter(out, "llama")
    writer.add_name("noise")
    writer.add_context_length(TRAINED)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(BLOCKS)
    writer.add_feed_forward_length(HIDDEN)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_rope_dimension_count(WIDTH // HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    tokens = add_vocabulary(writer, GGUFReader(vocabulary))
    writer.add_chat_template(Path(template).read_text())

    random = numpy.random.default_rng(1876)

    def add(name, *shape):
        weights = (random.standard_normal(shape, dtype=numpy.float32) * 0.1).astype(numpy.float16)
        writer.add_tensor(f"{name}.weight", weights, raw_dtype=GGMLQuantizationType.F16)

    def add_norm(name):
        writer.add_tensor(f"{name}.weight", numpy.ones(WIDTH, dtype=numpy.float32))

    add("token_embd", tokens, WIDTH)
    add("output", tokens, WIDTH)
    add_norm("output_norm")
    for at in range(BLOCKS):
        for part in ("attn_q", "attn_k", "attn_v", "attn_output"):
            add(f"blk.{at}.{part}", WIDTH, WIDTH)
        add(f"blk.{at}.ffn_gate", HIDDEN, WIDTH)
        add(f"blk.{at}.ffn_up", HIDDEN, WIDTH)
        add(f"blk.{at}.ffn_down", WIDTH, HIDDEN)
        add_norm(f"blk.{at}.attn_norm")
        add_norm(f"blk.{at}.ffn_norm")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def add_vocabulary(writer, reader):
    """Copies the tokenizer; returns its number of tokens."""
    for name, field in reader.fields.items():
        if name.startswith("tokenizer.") and name != "tokenizer.chat_template":
            kind, inner = field.types[0], field.types[-1] if len(field.types) > 1 else None
            writer.add_key_value(name, field.contents(), kind, inner)
    return len(reader.fields["tokenizer.ggml.tokens"].data)


if __name__ == "__main__":
    main(*sys.argv[1:])
