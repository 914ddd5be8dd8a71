/* unshard_measure_tensors: read every tensor of a checkpoint once, block by block, and add up what its elements are.
 *
 * Blocks of up to WINDOW_UNITS units are measured in parallel, then added up in their order; then come the next. So the
 * sums do not depend on threads, and memory not on the size of the tensors. First and second moments of a parameter are
 * read together, because the update that they make needs both. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "api/caller.h"
#include "api/errors.h"
#include "base/checked.h"
#include "base/cleanup.h"
#include "base/pool.h"
#include "measure/adam_rule.h"
#include "model/finding.h"
#include "names/module_path.h"

enum { WINDOW_UNITS = 256, MOST_TENSORS = 2 };

/* Tensors of one shape that are read together: one, or the two moments of a parameter. */
struct job {
	size_t tensor[MOST_TENSORS], n_tensors;
	uint64_t n_elems, row, n_experts; /* row: elements of one; 0 = there are none */
	struct adam rule;
	double lr; /* NAN = the rule is not known */
};

/* A block of a job. */
struct unit {
	size_t job;
	uint64_t first, n, expert;
	bool ends_row, ends_part, ends_job;
	struct tally tally[MOST_TENSORS];
	double squares; /* of the update */
	char *why;      /* it cannot be read: the file is damaged */
};

/* What is being added up: of the job, or of its part. */
struct sums {
	struct tally tally[MOST_TENSORS];
	struct uns_sum squares;
};

struct measure {
	struct caller caller;
	unshard_tensors *list;
	struct job *job;
	size_t n_jobs;
	struct unit *unit;
	size_t n_units;
	struct uns_pool *pool;
	_Atomic uint64_t done_bytes;
	uint64_t total_bytes;
	struct sums whole, part;
	bool row_is_large[MOST_TENSORS]; /* so far */
	char *why; /* of the job that is being added up */
	int told;
};

/* -- which tensors -- */

/* A name for what another tensor in the list has. A weight that is only held as its fp32 copy is none. */
static bool is_alias(const struct measure *m, size_t i)
{
	const struct uns_catalog *cat = tensors_catalog(m->list);
	const struct uns_tensor *t = tensor_in_catalog(m->list, i);

	return t->alias_of < cat->n_tensors &&
	       (cat->tensors[t->alias_of].dtype == t->dtype || strcmp(cat->tensors[t->alias_of].name, t->name) != 0);
}

static bool shapes_equal(const struct unshard_tensor *a, const struct unshard_tensor *b)
{
	return a->n_dims == b->n_dims && memcmp(a->shape, b->shape, a->n_dims * sizeof(*a->shape)) == 0;
}

/* Second moments for first ones; the tensor itself = there are none of that shape, or they were listed before. */
static size_t partner_of(const struct measure *m, size_t i)
{
	const struct unshard_tensor *t = unshard_tensors_at(m->list, i);
	size_t k;

	if (t->role != UNSHARD_EXP_AVG || unshard_tensors_find(m->list, t->name, "exp_avg_sq", &k, NULL) < 0)
		return i;
	return shapes_equal(t, unshard_tensors_at(m->list, k)) && !is_alias(m, k) ? k : i;
}

static struct job job_of(const struct measure *m, size_t i, size_t partner)
{
	const struct unshard_tensor *t = unshard_tensors_at(m->list, i);
	struct job job = { .tensor = { i, partner }, .n_tensors = partner == i ? 1 : 2, .n_elems = 1, .lr = NAN };
	uint32_t k;

	for (k = 0; k < t->n_dims; k++)
		job.n_elems *= t->shape[k];
	if (!job.n_elems)
		return job;
	job.n_experts = uns_name_experts(t->name, t->shape, t->n_dims);
	if (t->n_dims > 1)
		job.row = job.n_elems / t->shape[0] / (job.n_experts ? t->shape[1] : 1);
	if (partner != i && !adam_rule_of(m->list, i, &job.rule, &job.lr))
		job.lr = NAN;
	return job;
}

static int jobs_make(struct measure *m, struct uns_err *err)
{
	const size_t n = unshard_tensors_count(m->list);
	UNS_CLEANUP(uns_free_p) bool *taken = calloc(n + 1, sizeof(*taken));
	size_t i, k, partner;

	UNS_TRY_ALLOC(taken, err);
	UNS_TRY_ALLOC(m->job = calloc(n + 1, sizeof(*m->job)), err);
	for (i = 0; i < n; i++) {
		if (taken[i] || is_alias(m, i))
			continue;
		partner = partner_of(m, i);
		if (taken[partner])
			partner = i;
		taken[i] = taken[partner] = true;
		m->job[m->n_jobs] = job_of(m, i, partner);
		for (k = 0; k < m->job[m->n_jobs].n_tensors; k++)
			m->total_bytes += unshard_tensors_at(m->list, m->job[m->n_jobs].tensor[k])->size_bytes;
		m->n_jobs++;
	}
	return 0;
}

/* -- what a unit's thread does -- */

static double small_of(const struct unshard_tensor *t)
{
	return t->role == UNSHARD_EXP_AVG_SQ ? UNSHARD_SMALL_SQUARE : 0;
}

static int unit_read(struct measure *m, struct unit *unit, uint8_t *buf, struct uns_err *err)
{
	const struct job *job = &m->job[unit->job];
	const struct unshard_tensor *t[MOST_TENSORS] = { NULL };
	uint8_t *at[MOST_TENSORS] = { buf, NULL };
	uint64_t bytes = 0, done;
	size_t i;

	for (i = 0; i < job->n_tensors; i++) {
		t[i] = unshard_tensors_at(m->list, job->tensor[i]);
		at[i] = buf + bytes;
		if (!unit->first)
			UNS_TRY(tensor_check(m->list, job->tensor[i], err));
		UNS_TRY(tensor_stretch_read(m->list, job->tensor[i], unit->first, unit->n, at[i], err));
		tally_make(&(struct tally_block){ (enum uns_dtype)t[i]->dtype, at[i], (size_t)unit->n, (size_t)job->row,
						  small_of(t[i]) },
			   &unit->tally[i]);
		bytes += unit->n * unshard_dtype_size(t[i]->dtype);
	}
	if (!isnan(job->lr))
		unit->squares = adam_squares(&job->rule, (enum uns_dtype)t[0]->dtype, at[0],
					     (enum uns_dtype)t[1]->dtype, at[1], (size_t)unit->n);
	done = atomic_fetch_add(&m->done_bytes, bytes) + bytes;
	return caller_progress(&m->caller, UNSHARD_READING, done, m->total_bytes) ? uns_fail(err, -EINTR, "interrupted")
										  : 0;
}

/* Damage is kept for the tensor's `why`; another failure ends the call. */
static int unit_work(void *ctx, size_t i, struct uns_err *err)
{
	struct measure *m = ctx;
	struct unit *unit = &m->unit[i];
	UNS_CLEANUP(uns_free_p) uint8_t *buf = NULL;
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
	struct uns_err why = { .keep = &arena };
	int code;

	if (!unit->n)
		return 0;
	UNS_TRY_ALLOC(buf = malloc((size_t)unit->n * MOST_TENSORS * 16), err);
	code = unit_read(m, unit, buf, &why);
	if (code >= 0)
		return 0;
	if (!uns_code_is_finding(code))
		return uns_fail_copy(err, &why);
	UNS_TRY_ALLOC(unit->why = strdup(why.text), err);
	return 0;
}

/* -- adding up -- */

static int hand_over(struct measure *m, const struct job *job, const struct sums *sums, int64_t expert)
{
	const struct tally *t;
	struct unshard_measure out;
	size_t i;

	for (i = 0; i < job->n_tensors && !m->told; i++) {
		t = &sums->tally[i];
		out = (struct unshard_measure){ .size = sizeof(out),
						.tensor = unshard_tensors_at(m->list, job->tensor[i]),
						.expert = expert,
						.why = m->why,
						.norm_update = NAN,
						.lr = NAN };
		if (!m->why) {
			out.n_elems = t->n_elems;
			out.n_zero = t->n_zero;
			out.n_negative = t->n_negative;
			out.n_nan = t->n_nan;
			out.n_infinite = t->n_infinite;
			out.min = t->min;
			out.max = t->max;
			out.mean = t->n_finite ? uns_sum_value(&t->sum) / (double)t->n_finite : 0;
			out.norm = sqrt(uns_sum_value(&t->square));
			memcpy(out.magnitude, t->magnitude, sizeof(out.magnitude));
			out.n_rows = job->row ? t->n_elems / job->row : 0;
			out.n_small_rows = t->n_small_rows;
		}
		if (!m->why && !i && !isnan(job->lr)) {
			out.norm_update = sqrt(uns_sum_value(&sums->squares));
			out.lr = job->lr;
		}
		if (m->caller.calls.measure)
			m->told = m->caller.calls.measure(m->caller.calls.ctx, &out);
	}
	return m->told;
}

/* A row that is longer than a block is small if all its blocks are. */
static void unit_add(struct measure *m, const struct unit *unit)
{
	const struct job *job = &m->job[unit->job];
	struct sums *to[] = { &m->whole, &m->part };
	size_t i, k;

	for (i = 0; i < job->n_tensors; i++) {
		m->row_is_large[i] |= unit->tally[i].has_large;
		for (k = 0; k < 2; k++) {
			tally_add(&to[k]->tally[i], &unit->tally[i]);
			to[k]->tally[i].n_small_rows += unit->ends_row && !m->row_is_large[i];
		}
		if (unit->ends_row)
			m->row_is_large[i] = false;
	}
	for (k = 0; k < 2; k++)
		uns_sum_add(&to[k]->squares, &(struct uns_sum){ .sum = unit->squares });
}

static int window_end(struct measure *m, struct uns_err *err)
{
	struct unit *unit, *end = m->unit + m->n_units;

	UNS_TRY(uns_pool_each(m->pool, m->n_units, unit_work, m, err));
	for (unit = m->unit; unit < end; unit++) {
		const struct job *job = &m->job[unit->job];

		if (!m->why)
			m->why = UNS_TAKE(unit->why);
		unit_add(m, unit);
		if (unit->ends_part && !m->why)
			hand_over(m, job, &m->part, (int64_t)unit->expert);
		if (unit->ends_part)
			m->part = (struct sums){ 0 };
		if (!unit->ends_job)
			continue;
		hand_over(m, job, &m->whole, -1);
		m->whole = m->part = (struct sums){ 0 };
		free(UNS_TAKE(m->why));
		if (m->told)
			return uns_fail(err, -EINTR, "interrupted");
	}
	for (unit = m->unit; unit < end; unit++)
		free(UNS_TAKE(unit->why));
	m->n_units = 0;
	return 0;
}

/* -- cutting jobs into units -- */

/* Of a subclass, or quantised: bytes that are not values. */
static bool is_strange(const struct measure *m, const struct job *job)
{
	return tensor_in_catalog(m->list, job->tensor[0])->strange ||
	       tensor_in_catalog(m->list, job->tensor[job->n_tensors - 1])->strange;
}

static int job_refuse(struct measure *m, size_t i, struct uns_err *err)
{
	struct unit *unit;

	if (m->n_units == WINDOW_UNITS)
		UNS_TRY(window_end(m, err));
	unit = &m->unit[m->n_units++];
	*unit = (struct unit){ .job = i, .ends_job = true };
	UNS_TRY_ALLOC(unit->why = strdup("its bytes are not its values: a subclass of torch.Tensor wrote them"), err);
	return 0;
}

/* Whole rows, or a part of one; of one expert. */
static int job_cut(struct measure *m, size_t i, struct uns_err *err)
{
	const struct job *job = &m->job[i];
	const uint64_t of_part = job->n_experts ? job->n_elems / job->n_experts : job->n_elems;
	const bool long_rows = job->row > TALLY_BLOCK_ELEMS;
	const uint64_t most = job->row && !long_rows ? TALLY_BLOCK_ELEMS / job->row * job->row : TALLY_BLOCK_ELEMS;
	uint64_t first = 0, left;
	struct unit *unit;

	if (is_strange(m, job))
		return job_refuse(m, i, err);
	do {
		if (m->n_units == WINDOW_UNITS)
			UNS_TRY(window_end(m, err));
		unit = &m->unit[m->n_units++];
		*unit = (struct unit){ .job = i, .first = first, .expert = job->n_experts ? first / of_part : 0 };
		if (job->n_elems) {
			left = long_rows ? job->row - first % job->row : of_part - first % of_part;
			unit->n = uns_u64_min(most, left);
		}
		first += unit->n;
		unit->ends_row = long_rows && first % job->row == 0;
		unit->ends_part = job->n_experts && first % of_part == 0;
		unit->ends_job = first == job->n_elems;
	} while (first < job->n_elems);
	return 0;
}

/* -- the call -- */

static int measure_make(struct measure *m, unshard *u, const char *checkpoint, struct uns_err *err)
{
	struct unshard_error why = { 0 };
	size_t i;

	if (unshard_tensors_open(u, checkpoint, NULL, &m->list, &why) < 0)
		return uns_fail(err, why.code, "%s", why.text);
	UNS_TRY_ALLOC(m->unit = calloc(WINDOW_UNITS, sizeof(*m->unit)), err);
	UNS_TRY(uns_pool_new(UNS_THREADS_MEASURE - 1, NULL, &m->pool, err)); /* the caller's thread works too */
	UNS_TRY(jobs_make(m, err));
	for (i = 0; i < m->n_jobs; i++)
		UNS_TRY(job_cut(m, i, err));
	return window_end(m, err);
}

static void measure_fini(struct measure *m)
{
	size_t i;

	if (m->pool)
		uns_pool_free(m->pool);
	for (i = 0; i < m->n_units; i++)
		free(m->unit[i].why);
	free(m->why);
	free(m->unit);
	free(m->job);
	unshard_tensors_close(m->list);
}

int unshard_measure_tensors(unshard *u, const char *checkpoint, const struct unshard_calls *calls,
			    struct unshard_error *error)
{
	UNS_CLEANUP(measure_fini) struct measure m = { 0 };
	struct uns_err err = { 0 };
	int code = caller_init(&m.caller, calls, &err);

	if (code < 0)
		return give_error(error, &err, code);
	code = measure_make(&m, u, checkpoint, &err);
	return give_error(error, &err, caller_fini(&m.caller, m.told ? m.told : code));
}
