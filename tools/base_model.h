/* Where a base model is that the user named. */
#ifndef TOOLS_BASE_MODEL_H
#define TOOLS_BASE_MODEL_H

/* The directory to open for BASE: a path, or "ORG/NAME" in the local Hugging Face cache ($HF_HUB_CACHE, $HF_HOME/hub,
 * ~/.cache/huggingface/hub; the snapshot that refs/main names). *inside: the model's path below that directory, which
 * points into the result or is ""; the files of a snapshot are links to files above it. NULL = there is none, or memory
 * is out. Free it. */
char *base_find(const char *base, const char **inside);

#endif
