/* The table of findings, made of the rows of finding_kinds.h, and the phrases that several of them share. */
#include "model/finding.h"

/* The code of a row. */
#define NOTE       0 /* nothing is wrong */
#define INCOMPLETE -ENODATA
#define DAMAGED    -EBADMSG
#define UNKNOWN    -ENOTSUP /* sound, for all that is known, and in a form that is not */
#define NOT_YET    -EAGAIN /* not judged: it may be sound a moment later */
#define OUTSIDE    -EXDEV /* not judged: something of it is outside SOURCE, and not read */
#define ELSEWHERE  -ENOENT /* the checkpoint is whole; the file that should name it names another */

#define OR_BEFORE  ", or resume from the checkpoint before it"
#define GO_BEFORE  "resume from the checkpoint before it"
#define COPY_BACK  "copy it back from the training machine"
#define COPY_AGAIN "copy the file again from the training machine"
#define ONE_DTYPE \
	"--repair OUT writes a copy with one dtype for all ranks where most of them agree; or " COPY_AGAIN OR_BEFORE
#define OF_TWO_SAVES ": the files are of two saves; copy this save's files again from the training machine" OR_BEFORE

/* What leaves a directory without weights in it. */
#define SAVE_ONLY_MODEL \
	"FSDP SHARDED_STATE_DICT with save_only_model does this (transformers before 4.50): set save_only_model to false, or fsdp_state_dict_type to FULL_STATE_DICT; if the shards are on other nodes' disks, copy them here"
#define SAVE_WEIGHTS_ONLY \
	"FSDPStrategy(state_dict_type='sharded') with ModelCheckpoint(save_weights_only=True) does this before Lightning 2.2.2: upgrade Lightning, or set save_weights_only to false, or state_dict_type to 'full'"
#define NOT_BEGUN \
	"the save did not begin, or the shards are on other nodes' disks: copy them here, or delete the directory"

/* The severity of a row. */
#define SEVERITY(CODE) ((CODE) == NOT_YET || (CODE) == OUTSIDE ? UNS_UNJUDGED : (CODE) ? UNS_PROBLEM : UNS_NOTE)

static const struct uns_finding_words words[] = {
#define KIND(ID, NAME, CODE, ...) \
	[UNS_FOUND_##ID] = { .name = #NAME, .code = (CODE), .severity = SEVERITY(CODE), .sentence = __VA_ARGS__ },
#include "model/finding_kinds.h"
#undef KIND
};

const struct uns_finding_words *uns_finding_words(enum uns_finding_id id)
{
	return &words[id];
}

const char *uns_finding_general_advice(int code)
{
	return code == INCOMPLETE ? COPY_BACK OR_BEFORE : NULL;
}
