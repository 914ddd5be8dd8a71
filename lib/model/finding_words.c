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

/* Of .help: what is true of many kinds. */
#define COPY_ALL   "copy the checkpoint's files again from the training machine" OR_BEFORE
#define OTHER_VIEW "take another view: unshard show CHECKPOINT lists those that are available"
#define WRITER_READS \
	"load it with the program that wrote it; unshard show CHECKPOINT lists the views that are available"
#define NOTHING_TO_DO "nothing"

/* What leaves a directory without weights in it. */
#define SAVE_ONLY_MODEL \
	"FSDP SHARDED_STATE_DICT with save_only_model does this (transformers before 4.50): set save_only_model to false, or fsdp_state_dict_type to FULL_STATE_DICT; if the shards are on other nodes' disks, copy them here"
#define SAVE_WEIGHTS_ONLY \
	"FSDPStrategy(state_dict_type='sharded') with ModelCheckpoint(save_weights_only=True) does this before Lightning 2.2.2: upgrade Lightning, or set save_weights_only to false, or state_dict_type to 'full'"
#define NOT_BEGUN \
	"the save did not begin, or the shards are on other nodes' disks: copy them here, or delete the directory"

/* The severity of a row. */
#define SEVERITY(CODE) ((CODE) == NOT_YET || (CODE) == OUTSIDE ? UNS_UNJUDGED : (CODE) ? UNS_PROBLEM : UNS_NOTE)

#define SECTION(TITLE)
static const struct uns_finding_words words[] = {
#define KIND(ID, NAME, CODE, ...) \
	[UNS_FOUND_##ID] = { .name = #NAME, .code = (CODE), .severity = SEVERITY(CODE), .sentence = __VA_ARGS__ },
#include "model/finding_kinds.h"
#undef KIND
};
#undef SECTION

/* The rows of the table: a section's title, and NULL for a kind. */
#define SECTION(TITLE) TITLE,
#define KIND(ID, ...)  NULL,
static const char *const rows[] = {
#include "model/finding_kinds.h"
};

const struct uns_finding_words *uns_finding_words(enum uns_finding_id id)
{
	return &words[id];
}

const char *uns_finding_general_advice(int code)
{
	return code == INCOMPLETE ? COPY_BACK OR_BEFORE : NULL;
}

const char *uns_finding_section(enum uns_finding_id id)
{
	const char *title = NULL;
	const char *const *row = rows;
	int kinds = -1;

	for (; kinds < (int)id; row++)
		if (*row)
			title = *row;
		else
			kinds++;
	return title;
}

const char *uns_finding_cause(enum uns_finding_id id)
{
	const struct uns_finding_words *of = &words[id];

	if (of->cause)
		return of->cause;
	switch (of->code) {
	case INCOMPLETE:
		return "a file, or a part of one, is absent: the save did not end, the copy is not complete, or something was deleted";
	case DAMAGED:
		return "what unshard reads is not valid, or contradicts other files: a file was cut, changed or exchanged, or files of two saves are mixed";
	case UNKNOWN:
		return "the files are sound as far as unshard knows; unshard does not read this form, or cannot convert it to the view";
	case NOT_YET:
		return "something in the checkpoint changed a moment ago";
	case OUTSIDE:
		return "something that belongs to the checkpoint is outside the path that you gave";
	case ELSEWHERE:
		return "the checkpoint is whole, and a file that should name the newest checkpoint names one that is absent";
	default:
		return "a note: the message names what is worth knowing";
	}
}

const char *uns_finding_help(enum uns_finding_id id)
{
	const struct uns_finding_words *of = &words[id];
	const char *general = uns_finding_general_advice(of->code);

	if (of->help)
		return of->help;
	if (of->advice && *of->advice)
		return of->advice;
	return general;
}
