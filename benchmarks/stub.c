/* A retriever that costs next to nothing, to measure who asks it: one thread, epoll, answers rendered beforehand.
 *
 *     gcc -O2 -o stub benchmarks/stub.c; ./stub PORT ANSWERS [DELAY_US]
 *
 * The first letter q followed by a number in the first line or the body of a request names the answer: q7 is
 * [{"id": "c7-0", "score": 0.95, "text": ...}, ... c7-9], 3.7 kB. DELAY_US: every answer is sent that much later.
 * PUT /q5 changes answers for good: 5 of every 100, other ones each time, have another two neighbours swapped and the
 * fourth digit of every score moved. It is answered when all are rendered.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { HITS = 10, CONNECTIONS = 4096, RECEIVED = 16384, RENDERED = 8192, WAITING = 1 << 14 };

struct answer { char *text; int length; unsigned generation; };
struct connection { char received[RECEIVED + 1]; int length; unsigned opened; };
struct waiting { int fd; unsigned opened; int number; long long due; };

static struct answer *answers;
static int count;
static struct connection *connections[CONNECTIONS];
static struct waiting queue[WAITING];
static unsigned queue_head, queue_tail;
static long delay;

static long long now_us(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1000000LL + now.tv_nsec / 1000;
}

static unsigned mix(unsigned a, unsigned b) {
  unsigned hash = a * 2654435761u ^ (b + 1) * 2246822519u;
  hash ^= hash >> 15; hash *= 3266489917u;
  return hash ^ hash >> 13;
}

static void render(int number) {
  struct answer *one = &answers[number];
  char body[RENDERED];
  int length = sprintf(body, "["), swapped = one->generation ? mix(number, one->generation) % (HITS - 1) : HITS;
  for (int rank = 0; rank < HITS; rank++) {
    int chunk = rank == swapped ? rank + 1 : rank == swapped + 1 ? rank - 1 : rank;
    double moved = one->generation ? (mix(number * HITS + rank, one->generation) % 19 - 9.0) * 1e-4 : 0;
    length += sprintf(body + length, "%s{\"id\":\"c%d-%d\",\"score\":%.6f,\"text\":\"", rank ? "," : "", number, chunk,
                      0.95 - 0.05 * rank - number % 97 * 1e-4 + moved);
    for (int part = 0; part < 11; part++)
      length += sprintf(body + length, "lorem ipsum dolor %d sit amet ", (number * 31 + chunk * 7 + part) % 100);
    length += sprintf(body + length, "\"}");
  }
  length += sprintf(body + length, "]");
  if (!one->text) one->text = malloc(RENDERED + 128);
  one->length = sprintf(one->text, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%.*s",
                        length, length, body);
}

static void change(int of_hundred) {
  static unsigned generation;
  generation++;
  for (int number = 0; number < count; number++) {
    if ((number * 37 + generation * 41) % 100 >= (unsigned)of_hundred) continue;
    answers[number].generation = generation;
    render(number);
  }
}

static void send_all(int fd, const char *text, int length) {
  while (length > 0) {
    ssize_t sent = write(fd, text, length);
    if (sent < 0 && errno == EAGAIN) { usleep(20); continue; }
    if (sent < 0) return;
    text += sent; length -= sent;
  }
}

/* The number after the first q of a text that has one; -1 where none has. */
static int number_in(const char *text) {
  for (const char *at = strchr(text, 'q'); at; at = strchr(at + 1, 'q'))
    if (at[1] >= '0' && at[1] <= '9') return atoi(at + 1);
  return -1;
}

static void answer_request(int fd, const char *line, const char *body) {
  int number = number_in(line);
  if (!strncmp(line, "PUT", 3)) {
    static const char done[] = "HTTP/1.1 204 No Content\r\n\r\n";
    change(number);
    send_all(fd, done, sizeof done - 1);
    return;
  }
  if (number < 0) number = number_in(body);
  number = number < 0 ? 0 : number % count;
  if (!delay) send_all(fd, answers[number].text, answers[number].length);
  else queue[queue_tail++ % WAITING] = (struct waiting){fd, connections[fd]->opened, number, now_us() + delay};
}

/* Answers every request that has come in whole. */
static void read_requests(int fd, struct connection *one) {
  for (char *end; (end = memmem(one->received, one->length, "\r\n\r\n", 4));) {
    char *line_end = memmem(one->received, one->length, "\r\n", 2), *body = end + 4;
    *end = 0;
    char *header = strcasestr(one->received, "\ncontent-length:");
    int length = header ? atoi(header + 16) : 0, whole = body - one->received + length;
    *end = '\r';
    if (one->length < whole) return;
    char line_sign = *line_end, next = one->received[whole];
    *line_end = one->received[whole] = 0;
    answer_request(fd, one->received, body);
    *line_end = line_sign; one->received[whole] = next;
    memmove(one->received, one->received + whole, one->length - whole);
    one->length -= whole;
    one->received[one->length] = 0;
  }
}

static void send_due(void) {
  for (long long now = now_us(); queue_head != queue_tail && queue[queue_head % WAITING].due <= now; queue_head++) {
    struct waiting *one = &queue[queue_head % WAITING];
    if (connections[one->fd]->opened == one->opened)
      send_all(one->fd, answers[one->number].text, answers[one->number].length);
  }
}

int main(int words, char **word) {
  if (words < 3) return fprintf(stderr, "usage: stub PORT ANSWERS [DELAY_US]\n"), 2;
  count = atoi(word[2]);
  delay = words > 3 ? atol(word[3]) : 0;
  answers = calloc(count, sizeof *answers);
  for (int number = 0; number < count; number++) render(number);
  int listening = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), one = 1, all = epoll_create1(0);
  struct sockaddr_in address = {
    .sin_family = AF_INET, .sin_port = htons(atoi(word[1])), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  setsockopt(listening, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
  if (bind(listening, (void *)&address, sizeof address) || listen(listening, 1024)) return perror("bind"), 1;
  struct epoll_event event = {.events = EPOLLIN, .data.fd = listening}, events[256];
  epoll_ctl(all, EPOLL_CTL_ADD, listening, &event);
  for (;;) {
    struct timespec left, *wait = NULL;
    if (queue_head != queue_tail) {
      long long us = queue[queue_head % WAITING].due - now_us();
      left = us > 0 ? (struct timespec){us / 1000000, us % 1000000 * 1000} : (struct timespec){0};
      wait = &left;
    }
    int ready = epoll_pwait2(all, events, 256, wait, NULL);
    send_due();
    for (int i = 0; i < ready; i++) {
      int fd = events[i].data.fd;
      if (fd == listening) {
        for (int new; (new = accept4(listening, NULL, NULL, SOCK_NONBLOCK)) >= 0;) {
          if (new >= CONNECTIONS) { close(new); continue; }
          setsockopt(new, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
          if (!connections[new]) connections[new] = calloc(1, sizeof **connections);
          connections[new]->length = 0;
          connections[new]->opened++;
          event.data.fd = new;
          epoll_ctl(all, EPOLL_CTL_ADD, new, &event);
        }
        continue;
      }
      struct connection *from = connections[fd];
      ssize_t got = read(fd, from->received + from->length, RECEIVED - from->length);
      if (got < 0 && errno == EAGAIN) continue;
      if (got <= 0) { from->opened++; close(fd); continue; }
      from->length += got;
      from->received[from->length] = 0;
      read_requests(fd, from);
    }
  }
}
