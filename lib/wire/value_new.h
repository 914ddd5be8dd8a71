/* Builds plain values (wire/value.h) for files that unshard writes. All are allocated in an arena. A function returns
 * NULL if memory is out, and takes NULL for a value or text that could not be allocated; the arena remembers it, so
 * that one uns_arena_check at the end is enough. */
#ifndef UNS_WIRE_VALUE_NEW_H
#define UNS_WIRE_VALUE_NEW_H

#include "base/arena.h"
#include "wire/value.h"

struct uns_value *uns_value_new_none(struct uns_arena *arena);
struct uns_value *uns_value_new_bool(struct uns_arena *arena, bool b);
struct uns_value *uns_value_new_int(struct uns_arena *arena, int64_t i);
struct uns_value *uns_value_new_float(struct uns_arena *arena, double f);
struct uns_value *uns_value_new_str(struct uns_arena *arena, const char *s); /* borrowed */
/* A tensor: `index` into the table that the torch file's maker is given. */
struct uns_value *uns_value_new_tensor(struct uns_arena *arena, size_t index);

struct uns_value *uns_value_new_global(struct uns_arena *arena, const char *cls); /* borrowed */
/* cls(*args), then state: as a pickle's OBJECT. args NULL = out of memory; state NULL = none. */
struct uns_value *uns_value_new_object(struct uns_arena *arena, const char *cls, const struct uns_value *args,
				       const struct uns_value *state);
/* torch.Size((3, 4)): called with one tuple. dim NULL = n zeros. */
struct uns_value *uns_value_new_size(struct uns_arena *arena, const uint64_t *dim, uint32_t n);

/* Room for cap elements is made now; adding more is not allowed. */
struct uns_value *uns_value_new_tuple(struct uns_arena *arena, size_t cap);
struct uns_value *uns_value_new_list(struct uns_arena *arena, size_t cap);
struct uns_value *uns_value_new_dict(struct uns_arena *arena, size_t cap);
/* With the entries of `dict` but the one called `without` (NULL = all of them), and room for `more`. Of NULL and
 * of what is no dict there are no entries. */
struct uns_value *uns_value_new_dict_of(struct uns_arena *arena, const struct uns_value *dict, const char *without,
					size_t more);
/* Append to a list or tuple; add to a dict. false when an argument is NULL. */
bool uns_value_append(struct uns_value *list, const struct uns_value *v);
bool uns_value_put(struct uns_value *dict, const struct uns_value *key, const struct uns_value *v);
/* dict[name] = v; name is borrowed. */
bool uns_value_put_str(struct uns_arena *arena, struct uns_value *dict, const char *name, const struct uns_value *v);

/* A deep copy of v, strings included, which outlives v's arena. NULL also if v is nested deeper than
 * 100 or holds more than a million values. */
const struct uns_value *uns_value_copy(struct uns_arena *arena, const struct uns_value *v);

#endif
