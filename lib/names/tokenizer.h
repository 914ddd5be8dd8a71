/* What a config.json has of a tokenizer: how many tokens there are, and which begin and end a text. Pure. */
#ifndef UNS_NAMES_TOKENIZER_H
#define UNS_NAMES_TOKENIZER_H

#include <stdint.h>

#include "base/error.h"
#include "base/span.h"

struct uns_tokenizer {
	int64_t n_tokens, bos, eos; /* UNS_UNKNOWN = not recorded */
};

/* Reads tokenizer.json (tokenizers' form: model.vocab, added_tokens), and from tokenizer_config.json which tokens begin
 * and end a text. Either may be empty. The number of tokens is what len() of the tokenizer is in transformers. -EBADMSG
 * if one is damaged. */
int uns_tokenizer_read(struct uns_span tokenizer, struct uns_span config, struct uns_tokenizer *out,
		       struct uns_err *err);

#endif
