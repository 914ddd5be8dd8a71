/* Placeholder until facts are merged. */
#include "parts/trainer_state.h"
int uns_trainer_state_emit(const struct uns_training *training, struct uns_text *out, struct uns_err *err)
{
	(void)training;
	(void)out;
	return uns_fail(err, -ENOTSUP, "not yet");
}
