/* What a view makes of a checkpoint: a directory of virtual files. */
#ifndef UNS_MODEL_TREE_H
#define UNS_MODEL_TREE_H

#include "model/layout.h"

struct uns_vfile {
	const char *path; /* relative to the checkpoint's directory; '/' makes sub-directories */
	struct uns_layout layout;
	uint32_t source; /* the companion this file passes through, or UNS_NONE */
	/* Where the content comes from, for provenance.json; NULL = passed through unchanged. */
	const char *origin;
	uint32_t added; /* set by uns_vtree_add: which of two equal paths came first */
};

/* A tensor as a view's files of weights hold it. */
struct uns_named_tensor {
	const char *name; /* in the file */
	const struct uns_tensor *tensor;
	enum uns_dtype out; /* written as this type */
	const struct uns_slice *slice; /* the part of it that has this name; NULL = all */
};

/* Of a named tensor: how it is written. */
static inline const struct uns_shape *uns_named_shape(const struct uns_named_tensor *t)
{
	return t->slice ? &t->slice->shape : &t->tensor->shape;
}
static inline uint64_t uns_named_first(const struct uns_named_tensor *t)
{
	return t->slice ? t->slice->first_elem : 0;
}
/* A tensor under its own name and in its own dtype. */
static inline struct uns_named_tensor uns_named_as_is(const struct uns_tensor *t)
{
	return (struct uns_named_tensor){ t->name, t->of ? t->of : t, t->dtype, t->slice };
}
/* Its elements, behind each other. */
void uns_named_layout(struct uns_layout_builder *b, const struct uns_named_tensor *t);

struct uns_vtree {
	struct uns_arena arena;
	struct uns_vfile *v; /* sorted by path (natural order), paths unique */
	size_t n, cap;
	/* The checkpoint as one file, for views that show it so (views/view.h, form); its path is its
	 * name. NULL = only a directory. */
	const struct uns_vfile *whole;
	/* What the files of weights hold, in the catalog's order; n_tensors 0: the view has no such files. */
	const struct uns_named_tensor *tensor;
	size_t n_tensors;
	const char **note; /* sentences for problems.txt */
	size_t n_notes, cap_notes;
	/* Those notes by which a training that resumes from the view differs from one that never stopped. */
	const char **missed;
	size_t n_missed, cap_missed;
};

/* Zero-initialised is empty. Add in any order. On a duplicate path, or one below a path that is a
 * file, the first (the file) stays, and a note reports it; uns_vtree_seal settles both, after
 * which uns_vtree_find works. Paths, origins and layouts are borrowed: put them in tree->arena. */
int uns_vtree_add(struct uns_vtree *tree, const struct uns_vfile *file, struct uns_err *err);
int uns_vtree_add_text(struct uns_vtree *tree, const char *path, const char *text, size_t len, const char *origin,
		       struct uns_err *err); /* text is copied */
int uns_vtree_add_file(struct uns_vtree *tree, const struct uns_catalog *cat, const char *path, uint32_t file,
		       struct uns_err *err);
/* Under its own name: the file, or the part of it that is shown in its place. */
int uns_vtree_add_companion(struct uns_vtree *tree, const struct uns_catalog *cat,
			    const struct uns_companion *companion, struct uns_err *err);
__attribute__((format(printf, 3, 4))) int uns_vtree_note(struct uns_vtree *tree, struct uns_err *err, const char *fmt,
							 ...);
/* The same for something that the loader of the view does not restore. */
__attribute__((format(printf, 3, 4))) int uns_vtree_note_missed(struct uns_vtree *tree, struct uns_err *err,
								const char *fmt, ...);
/* Sets what the tree's files of weights hold; copied, but for the names. */
int uns_vtree_set_tensors(struct uns_vtree *tree, const struct uns_named_tensor *v, size_t n, struct uns_err *err);
/* Their sentences. */
int uns_vtree_note_findings(struct uns_vtree *tree, const struct uns_finding *f, size_t n, struct uns_err *err);
void uns_vtree_seal(struct uns_vtree *tree);
const struct uns_vfile *uns_vtree_find(const struct uns_vtree *tree, const char *path);
void uns_vtree_fini(struct uns_vtree *tree);

#endif
