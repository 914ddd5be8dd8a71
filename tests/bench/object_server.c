/* An object store whose limits are known: buckets are the directories in a directory, objects the files below them.
 *
 *     object_server DIR DELAY_US GB_PER_SECOND
 *
 * Every answer begins DELAY_US after its request, and all bodies together come no faster than GB_PER_SECOND. Bodies go
 * from the page cache to the connection (sendfile). ListObjectsV2 without a delimiter, GET with Range and If-Match, on
 * 127.0.0.1; signatures are not looked at. Prints its port. Ends with its standard input. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { MOST_REQUEST = 16 << 10, SENT_AT_ONCE = 1 << 20, NEAREST_NS = 1000000 };

static const char *top;
static int64_t delay_ns;
static double ns_per_byte;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of the next two */
static int64_t free_ns; /* when all bytes that were promised so far have been sent */
static FILE *listing;   /* the one that is written: nftw passes nothing on */

__attribute__((noreturn)) static void die(const char *what)
{
	perror(what);
	exit(2);
}

static int64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void wait_until(int64_t at_ns)
{
	const struct timespec t = { .tv_sec = at_ns / 1000000000, .tv_nsec = at_ns % 1000000000 };

	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR)
		;
}

/* Bodies take their turns at the limit that all have together. */
static void take_turn(size_t bytes)
{
	int64_t at_ns, now = now_ns();

	pthread_mutex_lock(&lock);
	at_ns = free_ns > now ? free_ns : now;
	free_ns = at_ns + (int64_t)((double)bytes * ns_per_byte);
	pthread_mutex_unlock(&lock);
	if (at_ns > now + NEAREST_NS)
		wait_until(at_ns);
}

/* -- answers -- */

static bool send_all(int fd, const char *bytes, size_t len)
{
	ssize_t n;

	for (; len; bytes += n, len -= (size_t)n) {
		n = send(fd, bytes, len, MSG_NOSIGNAL);
		if (n < 0)
			return false;
	}
	return true;
}

static bool answer(int fd, const char *status, const char *headers, const char *body)
{
	char *text = NULL;
	int n = asprintf(&text, "HTTP/1.1 %s\r\n%sContent-Length: %zu\r\n\r\n%s", status, headers, strlen(body), body);
	bool sent = n >= 0 && send_all(fd, text, (size_t)n);

	free(text);
	return sent;
}

static void etag_of(const struct stat *st, char out[64])
{
	snprintf(out, 64, "\"%llx-%llx\"", (unsigned long long)st->st_ino, (unsigned long long)st->st_mtim.tv_sec);
}

static int list_one(const char *path, const struct stat *st, int kind, struct FTW *where)
{
	const char *key = strchr(path + strlen(top) + 1, '/');
	char etag[64], time[32];
	struct tm utc;

	(void)where;
	if (kind != FTW_F || !key)
		return 0;
	etag_of(st, etag);
	gmtime_r(&st->st_mtime, &utc);
	strftime(time, sizeof(time), "%Y-%m-%dT%H:%M:%S.000Z", &utc);
	fprintf(listing,
		"<Contents><Key>%s</Key><LastModified>%s</LastModified><ETag>%s</ETag><Size>%lld</Size></Contents>",
		key + 1, time, etag, (long long)st->st_size);
	return 0;
}

/* All that is below the longest directory of the prefix: who asks leaves out what is too much. */
static bool list(int fd, const char *bucket, const char *prefix)
{
	char path[4096], *body = NULL;
	size_t len;
	bool sent;

	snprintf(path, sizeof(path), "%s/%s/%s", top, bucket, prefix);
	path[strrchr(path, '/') - path] = '\0';
	pthread_mutex_lock(&lock);
	listing = open_memstream(&body, &len);
	fprintf(listing, "<ListBucketResult><IsTruncated>false</IsTruncated>");
	nftw(path, list_one, 16, FTW_PHYS);
	fprintf(listing, "</ListBucketResult>");
	fclose(listing);
	pthread_mutex_unlock(&lock);
	sent = answer(fd, "200 OK", "Content-Type: application/xml\r\n", body);
	free(body);
	return sent;
}

static bool send_file(int fd, int file, off_t at, off_t end)
{
	ssize_t n;

	while (at < end) {
		n = end - at < SENT_AT_ONCE ? end - at : SENT_AT_ONCE;
		take_turn((size_t)n);
		n = sendfile(fd, file, &at, (size_t)n);
		if (n <= 0)
			return false;
	}
	return true;
}

/* `range`: "bytes=A-B", or NULL. */
static bool get(int fd, const char *path, const char *range, const char *match)
{
	char name[4096], etag[64], head[512];
	unsigned long long first = 0, last;
	struct stat st;
	int file, n;
	bool sent;

	snprintf(name, sizeof(name), "%s%s", top, path);
	file = open(name, O_RDONLY | O_CLOEXEC);
	if (file < 0 || fstat(file, &st) < 0 || !S_ISREG(st.st_mode)) {
		if (file >= 0)
			close(file);
		return answer(fd, "404 Not Found", "", "<Error><Code>NoSuchKey</Code></Error>");
	}
	etag_of(&st, etag);
	last = (unsigned long long)st.st_size - 1;
	if (match && strcmp(match, etag) != 0) {
		close(file);
		return answer(fd, "412 Precondition Failed", "", "<Error><Code>PreconditionFailed</Code></Error>");
	}
	if (range && (sscanf(range, "bytes=%llu-%llu", &first, &last) != 2 || first > last ||
		      last >= (unsigned long long)st.st_size)) {
		close(file);
		return answer(fd, "416 Range Not Satisfiable", "", "<Error><Code>InvalidRange</Code></Error>");
	}
	n = snprintf(head, sizeof(head),
		     "HTTP/1.1 206 Partial Content\r\nETag: %s\r\nContent-Range: bytes %llu-%llu/%lld\r\n"
		     "Content-Length: %llu\r\n\r\n",
		     etag, first, last, (long long)st.st_size, last - first + 1);
	sent = send_all(fd, head, (size_t)n) && send_file(fd, file, (off_t)first, (off_t)last + 1);
	close(file);
	return sent;
}

/* -- requests -- */

static void decode(char *text)
{
	char *to = text;
	unsigned byte;

	for (; *text; text++)
		if (*text == '%' && sscanf(text + 1, "%2x", &byte) == 1) {
			*to++ = (char)byte;
			text += 2;
		} else {
			*to++ = *text;
		}
	*to = '\0';
}

/* The header's value, ended where the line does; NULL = there is none. The lines have NULs in place of CR LF. */
static const char *header(const char *lines, const char *end, const char *name)
{
	const size_t n = strlen(name);

	for (; lines < end; lines += strlen(lines) + 2)
		if (strncasecmp(lines, name, n) == 0)
			return lines + n + strspn(lines + n, " ");
	return NULL;
}

static bool serve_one(int fd, char *text, char *end)
{
	char *path = strchr(text, ' '), *query, *prefix, *at;

	for (at = text; at < end; at++)
		if (*at == '\r' || *at == '\n')
			*at = '\0';
	if (strncmp(text, "GET ", 4) != 0)
		return answer(fd, "405 Method Not Allowed", "", "");
	path[1 + strcspn(path + 1, " ")] = '\0';
	path++;
	query = strchr(path, '?');
	if (query)
		*query++ = '\0';
	decode(path);
	wait_until(now_ns() + delay_ns);
	if (strstr(path, "/.."))
		return answer(fd, "400 Bad Request", "", "");
	if (!query)
		return get(fd, path, header(path + strlen(path) + 1, end, "Range:"),
			   header(path + strlen(path) + 1, end, "If-Match:"));
	prefix = strstr(query, "prefix=");
	prefix = prefix ? prefix + strlen("prefix=") : query + strlen(query);
	prefix[strcspn(prefix, "&")] = '\0';
	decode(prefix);
	return list(fd, path + 1, prefix);
}

static void *serve(void *ctx)
{
	const int fd = (int)(intptr_t)ctx;
	char text[MOST_REQUEST + 1], *end = NULL;
	size_t len = 0;
	ssize_t n = 1;

	while (n > 0 && len < MOST_REQUEST) {
		n = recv(fd, text + len, MOST_REQUEST - len, 0);
		len += n > 0 ? (size_t)n : 0;
		text[len] = '\0';
		end = strstr(text, "\r\n\r\n");
		if (!end)
			continue;
		if (!serve_one(fd, text, end + 2))
			break;
		end += 4;
		len -= (size_t)(end - text);
		memmove(text, end, len);
	}
	close(fd);
	return NULL;
}

static void *accept_all(void *ctx)
{
	const int fd = (int)(intptr_t)ctx;
	pthread_t thread;
	int connection;

	while ((connection = accept4(fd, NULL, NULL, SOCK_CLOEXEC)) >= 0) {
		if (pthread_create(&thread, NULL, serve, (void *)(intptr_t)connection) != 0)
			die("pthread_create");
		pthread_detach(thread);
	}
	die("accept");
}

int main(int argc, char **argv)
{
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof(address);
	pthread_t thread;
	int fd;

	if (argc != 4) {
		fprintf(stderr, "object_server DIR DELAY_US GB_PER_SECOND\n");
		return 2;
	}
	signal(SIGPIPE, SIG_IGN); /* readers may go in the middle of a body */
	top = argv[1];
	delay_ns = atoll(argv[2]) * 1000;
	ns_per_byte = 1 / atof(argv[3]);
	fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof(address)) < 0 || listen(fd, 1024) < 0 ||
	    getsockname(fd, (struct sockaddr *)&address, &len) < 0)
		die("object_server");
	printf("%u\n", ntohs(address.sin_port));
	fflush(stdout);
	if (pthread_create(&thread, NULL, accept_all, (void *)(intptr_t)fd) != 0)
		die("pthread_create");
	while (getchar() != EOF)
		;
	return 0;
}
