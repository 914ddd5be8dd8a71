/* Keys: those of timm (state_dict_ema), DETR and others (model_ema, ema_model), and scripts. */
#include "names/ema_names.h"

#include <string.h>

#include "base/path.h"
#include "names/template.h"

const char *const uns_ema_keys[] = { "ema", "model_ema", "ema_model", "state_dict_ema", "ema_state_dict", NULL };

bool uns_ema_is_key(const char *key)
{
	return uns_str_in(key, uns_ema_keys);
}

const char *uns_ema_weight(const char *name)
{
	return strcmp(name, "n_averaged") == 0 ? NULL : uns_strip_name("module.", name);
}
