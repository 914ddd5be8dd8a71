/* Turns of readers. */
#include "engine/turns.h"

/* Of a thread that waits, on its stack. */
struct uns_turn_wish {
	struct uns_turn_wish *next;
	uint64_t off;
};

void uns_turns_init(struct uns_turns *turns)
{
	pthread_mutex_init(&turns->lock, NULL);
	pthread_cond_init(&turns->passed, NULL);
}

void uns_turns_fini(struct uns_turns *turns)
{
	pthread_cond_destroy(&turns->passed);
	pthread_mutex_destroy(&turns->lock);
}

/* Lock held. */
static bool is_first(const struct uns_turn *turn, uint64_t off)
{
	const struct uns_turn_wish *w;

	for (w = turn->first; w; w = w->next)
		if (w->off < off)
			return false;
	return true;
}

/* Lock held. */
static void forget(struct uns_turn *turn, const struct uns_turn_wish *wish)
{
	struct uns_turn_wish **at = &turn->first;

	while (*at != wish)
		at = &(*at)->next;
	*at = wish->next;
	turn->n_waiting--;
}

bool uns_turn_take(struct uns_turns *turns, struct uns_turn *turn, uint64_t off, uns_turns_wanted_fn *wanted, void *ctx,
		   uint64_t *next)
{
	struct uns_turn_wish wish = { .off = off };
	bool takes;

	pthread_mutex_lock(&turns->lock);
	wish.next = turn->first;
	turn->first = &wish;
	turn->n_waiting++;
	while ((takes = wanted(ctx)) && (turn->taken || !is_first(turn, off)))
		pthread_cond_wait(&turns->passed, &turns->lock);
	forget(turn, &wish);
	turn->taken |= takes;
	*next = turn->next;
	pthread_mutex_unlock(&turns->lock);
	return takes;
}

void uns_turn_pass(struct uns_turns *turns, struct uns_turn *turn, uint64_t end)
{
	pthread_mutex_lock(&turns->lock);
	turn->taken = false;
	turn->next = end;
	pthread_cond_broadcast(&turns->passed);
	pthread_mutex_unlock(&turns->lock);
}

void uns_turns_look(struct uns_turns *turns)
{
	pthread_mutex_lock(&turns->lock);
	pthread_cond_broadcast(&turns->passed);
	pthread_mutex_unlock(&turns->lock);
}
