/* torch.save files whose CRCs are right, whatever is in them. */
#ifndef TESTS_FUZZ_TORCH_MAKER_H
#define TESTS_FUZZ_TORCH_MAKER_H

#include "base/span.h"
#include "base/text.h"

struct torch_maker {
	struct uns_text zip, directory;
	size_t n;
};
#define TORCH_MAKER_INIT ((struct torch_maker){ 0 })

void torch_maker_add(struct torch_maker *maker, const char *name, struct uns_span bytes);
/* Ends the file, which is maker->zip then. */
void torch_maker_end(struct torch_maker *maker);
void torch_maker_fini(struct torch_maker *maker);

/* The pickle in front of the input as a file's data.pkl, with the storages that it names, each as long as it
 * says. false: there is none left. Without an end it is all that is left. */
bool torch_of_pickle(struct uns_span *input, struct torch_maker *out);
/* The same as file `name` (files.h). */
bool files_put_torch(const char *name, struct uns_span *input);
/* Two files of the input's two pickles; of one pickle both. */
bool files_put_torch_pair(const char *first, const char *second, struct uns_span input);

#endif
