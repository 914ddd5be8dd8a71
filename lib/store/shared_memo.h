/* A checkpoint described once for all machines: the key of its memo, and the memo's parts. What a machine has of its
 * own (where SOURCE is, inode and device numbers, change times) is in neither; memo_file.h has the file.
 *
 * The key: the same sources of this library, with the same options, read files of the same names, sizes and mtimes in a
 * directory of the same name. That no file was rewritten without one of these changing is trusted. */
#ifndef UNS_STORE_SHARED_MEMO_H
#define UNS_STORE_SHARED_MEMO_H

#include "model/catalog.h"
#include "store/catalog_memo.h"

/* Of all memos that are made with these options. */
uint64_t shared_memo_salt(const struct memo_options *options);

struct shared_memo_subject {
	const struct uns_root *root;
	const char *path, *format;
	unsigned marks_up; /* the format's: how far up names of directories are looked at */
	uint64_t content; /* of the files in its directory (examine/examine.h) */
};

/* -ENOMEM */
int shared_memo_key(uint64_t salt, const struct shared_memo_subject *of, uint64_t *key, struct uns_err *err);

/* The list of what was looked at outside its directory, as bytes:
 *
 *   u64                how many; of each:
 *   u8                 enum uns_input_kind
 *   u32                how many directories up from the checkpoint's
 *   u32, bytes         the path below that one
 *   u64                since_ns
 *   u64                the answer, as uns_seen_anywhere gives it
 *
 * -ENOTSUP: something of it is one machine's alone. */
int shared_memo_pack_inputs(struct uns_capture *capture, const struct shared_memo_subject *of, struct uns_text *out,
			    struct uns_err *err);
/* Looks at all of it, and adds it to the capture's list. -ESTALE: something is not as it was; -EBADMSG: no such bytes.
 */
int shared_memo_seen(struct uns_capture *capture, const struct shared_memo_subject *of, struct uns_span bytes,
		     struct uns_err *err);

#endif
