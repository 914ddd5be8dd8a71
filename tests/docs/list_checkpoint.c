/* Lists the files of one checkpoint in a view, and prints the first bytes of its weights. */
#include <inttypes.h>
#include <stdio.h>

#include <unshard.h>

int main(int argc, char **argv)
{
	struct unshard_options options = { .store = "none" };
	struct unshard_error err = { 0 };
	struct unshard_listing *files = NULL;
	unshard_file *weights = NULL;
	unshard *session = NULL;
	unsigned char head[8];
	int rc = -1;

	if (argc != 2)
		return 2;
	if (unshard_open(argv[1], &options, &session, &err) ||
	    unshard_list(session, "weights/checkpoint-2", &files, &err) ||
	    unshard_file_open(session, "weights/checkpoint-2/model.safetensors", &weights, NULL,
			      &err) ||
	    unshard_pread(weights, head, sizeof(head), 0, &err) != sizeof(head)) {
		fprintf(stderr, "%s\n", err.text);
	} else {
		for (size_t i = 0; i < files->n; i++)
			printf("%10" PRIu64 "  %s\n", files->v[i].stat.size_bytes,
			       files->v[i].name);
		printf("the safetensors header has %d bytes\n", head[0] | head[1] << 8);
		rc = 0;
	}
	unshard_file_close(weights);
	unshard_listing_free(files);
	unshard_close(session);
	return rc ? 1 : 0;
}
