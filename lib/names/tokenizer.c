/* Counts tokens, and looks for the numbers of two of them. */
#include "names/tokenizer.h"

#include <string.h>

#include "base/cleanup.h"
#include "base/map.h"
#include "model/catalog.h"
#include "wire/json.h"

/* Adds each token of the model to `seen`: "vocab" is an object (token -> number), or a list of [token, score]. */
static int vocab_add(const cJSON *vocab, struct uns_map *seen, struct uns_err *err)
{
	const cJSON *item;
	const char *token;

	cJSON_ArrayForEach (item, vocab) {
		token = cJSON_IsArray(item) ? cJSON_GetStringValue(cJSON_GetArrayItem(item, 0)) : item->string;
		if (!token)
			return uns_fail(err, -EBADMSG, "an entry of model.vocab is no token");
		UNS_TRY_ALLOC(uns_map_put(seen, token, (void *)vocab, NULL), err);
	}
	return 0;
}

static int tokens_count(const cJSON *root, int64_t *out, struct uns_err *err)
{
	UNS_CLEANUP(uns_map_fini) struct uns_map seen = UNS_MAP_INIT;
	const cJSON *vocab = cJSON_GetObjectItemCaseSensitive(cJSON_GetObjectItemCaseSensitive(root, "model"), "vocab");
	const cJSON *added = cJSON_GetObjectItemCaseSensitive(root, "added_tokens"), *item;
	const char *token;

	if (!cJSON_IsObject(vocab) && !cJSON_IsArray(vocab))
		return 0;
	UNS_TRY(vocab_add(vocab, &seen, err));
	cJSON_ArrayForEach (item, added) {
		token = uns_json_str(item, "content");
		if (!token)
			return uns_fail(err, -EBADMSG, "one of added_tokens has no content");
		UNS_TRY_ALLOC(uns_map_put(&seen, token, (void *)added, NULL), err);
	}
	*out = (int64_t)seen.n;
	return 0;
}

/* A special token's text: the value is a text, or an object that has it. */
static const char *token_text(const cJSON *config, const char *key)
{
	const cJSON *value = cJSON_GetObjectItemCaseSensitive(config, key);

	return cJSON_IsObject(value) ? uns_json_str(value, "content") : cJSON_GetStringValue(value);
}

/* The number of an added token; UNS_UNKNOWN = there is no such token. */
static int64_t token_number(const cJSON *root, const char *text)
{
	const cJSON *item;
	const char *content;
	int64_t id;

	cJSON_ArrayForEach (item, cJSON_GetObjectItemCaseSensitive(root, "added_tokens")) {
		content = uns_json_str(item, "content");
		if (text && content && strcmp(content, text) == 0 && uns_json_int(item, "id", &id))
			return id;
	}
	return UNS_UNKNOWN;
}

int uns_tokenizer_read(struct uns_span tokenizer, struct uns_span config, struct uns_tokenizer *out,
		       struct uns_err *err)
{
	UNS_CLEANUP(uns_json_free_p) cJSON *root = NULL;
	UNS_CLEANUP(uns_json_free_p) cJSON *said = NULL;

	*out = (struct uns_tokenizer){ UNS_UNKNOWN, UNS_UNKNOWN, UNS_UNKNOWN };
	if (!uns_span_left(&tokenizer))
		return 0;
	if (uns_json_parse(tokenizer, &root, err) < 0 || tokens_count(root, &out->n_tokens, err) < 0)
		return uns_fail_in(err, "tokenizer.json");
	if (!uns_span_left(&config))
		return 0;
	if (uns_json_parse(config, &said, err) < 0)
		return uns_fail_in(err, "tokenizer_config.json");
	out->bos = token_number(root, token_text(said, "bos_token"));
	out->eos = token_number(root, token_text(said, "eos_token"));
	return 0;
}
