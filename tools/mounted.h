/* What a mount reports about itself in MOUNTPOINT/.unshard, without waiting for one that hangs. */
#ifndef TOOLS_MOUNTED_H
#define TOOLS_MOUNTED_H

#include <cJSON.h>

/* A file of MOUNTPOINT/.unshard, parsed; NULL = the mount is dead, does not answer within two seconds, or may not be
 * asked by this user. For cJSON_Delete. */
cJSON *mounted_json(const char *mountpoint, const char *name);
/* A member that is a number; 0 if it is none. */
double mounted_number(const cJSON *stats, const char *key);

#endif
