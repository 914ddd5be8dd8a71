/* YAML as configs are written in it: mappings, lists and plain values of one document, turned into the same cJSON tree
 * that wire/json.h gives. Values read as yaml.safe_load of Python reads them (yes, no, on and off are booleans).
 *
 * What a hostile file could grow by is refused with its line: aliases, merge keys, tags other than YAML's own, deep
 * nesting, too many nodes. */
#ifndef UNS_WIRE_YAML_H
#define UNS_WIRE_YAML_H

#include <cjson/cJSON.h>

#include "base/error.h"
#include "base/span.h"

enum { UNS_YAML_MAX_DEPTH = 64, UNS_YAML_MAX_NODES = 10000 };

/* Caller owns *out: cJSON_Delete, or UNS_CLEANUP(uns_json_free_p) of wire/json.h. An empty document
 * is cJSON's null. -EBADMSG damaged, -ENOTSUP YAML that is refused: both with the line. */
int uns_yaml_parse(struct uns_span in, cJSON **out, struct uns_err *err);

#endif
