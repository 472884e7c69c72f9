/* The two ends of a measurement: what sends and what receives, faster than any proxy between them.

   Python (native.py) makes the connections and shakes hands; all that is left to do here is frames on sockets. A frame
   is [size of the rest, u32, big-endian][rest]. Times are nanoseconds of CLOCK_MONOTONIC. Compiled when a benchmark
   begins: `cc -O2 -shared -fPIC`. */

#define _GNU_SOURCE
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define AT_ONCE (256 * 1024) /* bytes of one read or write */
#define FLOW_TYPE 11

static int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static void sleep_until(int64_t at) {
    struct timespec t = {at / 1000000000LL, at % 1000000000LL};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR) {}
}

static uint32_t u32(const uint8_t *at) {
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

/* A sequence id in its five bytes: from 2^28 on they have as many, up to 2^35. */
static void put_sequence(uint8_t *at, uint64_t id) {
    for (int i = 0; i < 4; i++, id >>= 7) at[i] = (id & 0x7f) | 0x80;
    at[4] = id;
}

static int send_whole(int fd, const uint8_t *data, size_t size) {
    while (size > 0) {
        ssize_t n = send(fd, data, size, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return -1;
        data += n;
        size -= n;
    }
    return 0;
}

/* ---- finding frames in what is read */

typedef struct {
    uint64_t frames; /* whole ones so far */
    uint64_t skip;   /* bytes up to the end of the one under way */
    uint8_t head[64];
    unsigned have;   /* of `head` */
} Walk;

static uint64_t varint(const uint8_t **at, const uint8_t *end) {
    uint64_t value = 0;
    for (int shift = 0; *at < end && shift < 64; shift += 7) {
        uint8_t byte = *(*at)++;
        value |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80) break;
    }
    return value;
}

/* The permits of a FLOW, as Pulsar's clients and proxies write it; 0 of any other command. */
static uint64_t permits_of(const uint8_t *command, size_t size) {
    const uint8_t *at = command, *end = command + size;
    if (size < 4 || *at++ != 0x08 || varint(&at, end) != FLOW_TYPE || at >= end || *at++ != (FLOW_TYPE << 3 | 2)) return 0;
    varint(&at, end);
    if (at >= end || *at++ != 0x08) return 0;
    varint(&at, end);
    return at < end && *at++ == 0x10 ? varint(&at, end) : 0;
}

/* How many bytes of a frame are to be seen before the rest is skipped. */
static unsigned head_of(const Walk *w, unsigned most) {
    if (w->have < 4) return 4;
    uint64_t whole = 4 + (uint64_t)u32(w->head);
    return whole < most ? whole : most;
}

/* Count the frames of a read; what its FLOWs permit goes to `permits`, if somebody asks. */
static void walk(Walk *w, const uint8_t *data, size_t size, uint64_t *permits) {
    const uint8_t *end = data + size;
    unsigned most = permits ? sizeof w->head : 4;
    while (data < end) {
        if (w->skip > 0) {
            uint64_t left = end - data, n = left < w->skip ? left : w->skip;
            w->skip -= n;
            data += n;
            if (w->skip == 0) w->frames++;
        } else if (w->have == 0 && !permits && end - data >= 4) {
            w->skip = 4 + (uint64_t)u32(data);
        } else {
            w->head[w->have++] = *data++;
            if (w->have < head_of(w, most)) continue;
            if (permits && w->have >= 12) *permits += permits_of(w->head + 8, u32(w->head + 4));
            w->skip = 4 + (uint64_t)u32(w->head) - w->have;
            w->have = 0;
            if (w->skip == 0) w->frames++;
        }
    }
}

/* ---- the receiving end */

typedef struct {
    const uint8_t *frame;
    int64_t size;
    int64_t every;       /* frames for each answer: 1 for receipts, more for FLOW */
    int64_t sequence_at; /* where the sequence id stands in it; -1 without */
    int64_t sequence;    /* the id of the first frame that is received */
} Answer;

/* Answer the frames from `before` to `w->frames`; a peer that is gone needs no answer. */
static void answer_frames(int fd, const Walk *w, uint64_t before, const Answer *answer, uint8_t *out) {
    size_t used = 0;
    for (uint64_t n = before / answer->every; n < w->frames / answer->every; n++) {
        if (used + answer->size > AT_ONCE) {
            if (send_whole(fd, out, used)) return;
            used = 0;
        }
        memcpy(out + used, answer->frame, answer->size);
        if (answer->sequence_at >= 0) put_sequence(out + used + answer->sequence_at, answer->sequence + n);
        used += answer->size;
    }
    send_whole(fd, out, used);
}

/* Count a read that was thrown away unseen, of frames of `size` bytes each. */
static void count_unseen(Walk *w, uint64_t got, uint64_t size) {
    uint64_t behind = got + (w->skip ? size - w->skip : 0);
    w->frames += behind / size;
    w->skip = behind % size ? size - behind % size : 0;
}

/* Read until every connection has ended, or nothing has come for `patience` ms, or `wanted` frames have come.

   Where all frames are of `each` bytes (0: who knows), the kernel throws away what a connection brings behind the first
   of them, and copies nothing: so this end is not what all others are waiting for.

   `frames` gets the whole frames of each connection, as they come, `at` when the first and the last bytes came (0: none
   did). Answers (none: NULL) are written as blocking writes: the other end must read. The connections stay open. */
void receive(const int *fds, int n, const Answer *answer, int patience, uint64_t wanted, uint64_t each, uint64_t *frames,
             int64_t *at) {
    struct pollfd *polled = calloc(n, sizeof *polled);
    Walk *walks = calloc(n, sizeof *walks);
    uint8_t *in = malloc(AT_ONCE), *out = malloc(AT_ONCE);
    uint64_t all = 0;
    int open = n;
    for (int i = 0; i < n; i++) polled[i] = (struct pollfd){fds[i], POLLIN, 0};
    at[0] = at[1] = 0;
    while (open > 0 && all < wanted && poll(polled, n, patience) > 0) {
        for (int i = 0; i < n; i++) {
            if (!polled[i].revents) continue;
            int is_unseen = each > 0 && walks[i].frames > 0 && walks[i].have == 0;
            ssize_t got = recv(fds[i], in, AT_ONCE, MSG_DONTWAIT | (is_unseen ? MSG_TRUNC : 0));
            if (got < 0 && (errno == EAGAIN || errno == EINTR)) continue;
            if (got <= 0) {
                polled[i].fd = -1;
                open--;
                continue;
            }
            at[1] = now_ns();
            if (!at[0]) at[0] = at[1];
            uint64_t before = walks[i].frames;
            if (is_unseen) count_unseen(&walks[i], got, each);
            else walk(&walks[i], in, got, NULL);
            all += walks[i].frames - before;
            frames[i] = walks[i].frames;
            if (answer) answer_frames(fds[i], &walks[i], before, answer, out);
        }
    }
    free(polled), free(walks), free(in), free(out);
}

/* ---- the sending end */

typedef struct {
    const uint8_t *chunk; /* whole frames, sent again and again */
    int64_t size;
    int64_t frame;        /* bytes of each of them */
    int64_t obeys;        /* whether only what is permitted is sent */
} Load;

typedef struct {
    Walk walk;
    uint64_t sent; /* bytes */
    uint64_t permits;
} Sending;

/* Bytes that may be sent now: none beyond the permits, and behind the end only the rest of a frame. */
static uint64_t may_send(const Load *load, const Sending *s, int is_over) {
    uint64_t begun = s->sent % load->frame;
    if (is_over) return begun ? load->frame - begun : 0;
    uint64_t in_chunk = load->size - s->sent % load->size;
    uint64_t most = in_chunk < AT_ONCE ? in_chunk : AT_ONCE;
    if (!load->obeys) return most;
    uint64_t permitted = s->permits * load->frame;
    if (permitted <= s->sent) return 0;
    return permitted - s->sent < most ? permitted - s->sent : most;
}

/* Send on all connections for `duration` ns, then end each at once behind its last whole frame: as `close` does, or, if
   permits come back, for this direction only: whoever closes with something unread throws away what it has sent, too.

   `frames` gets the whole frames that were sent on each. Returns when it began. */
int64_t send_for(const int *fds, int n, const Load *load, int64_t duration, uint64_t *frames) {
    struct pollfd *polled = calloc(n, sizeof *polled);
    Sending *sendings = calloc(n, sizeof *sendings);
    uint8_t *in = malloc(AT_ONCE);
    int64_t begun = now_ns();
    int open = n;
    for (int i = 0; i < n; i++) polled[i] = (struct pollfd){fds[i], POLLOUT, 0};
    while (open > 0) {
        int is_over = now_ns() - begun >= duration;
        for (int i = 0; i < n; i++) {
            if (polled[i].fd < 0) continue;
            uint64_t size = may_send(load, &sendings[i], is_over);
            polled[i].events = (size ? POLLOUT : 0) | (load->obeys ? POLLIN : 0);
            if (size || !is_over) continue;
            if (load->obeys) shutdown(fds[i], SHUT_WR);
            else close(fds[i]);
            polled[i].fd = -1;
            open--;
        }
        if (open == 0 || poll(polled, n, 10) <= 0) continue;
        for (int i = 0; i < n; i++) {
            Sending *s = &sendings[i];
            if (polled[i].fd < 0 || !polled[i].revents) continue;
            ssize_t got = 1;
            if (polled[i].revents & POLLIN) {
                got = recv(fds[i], in, AT_ONCE, MSG_DONTWAIT);
                if (got > 0) walk(&s->walk, in, got, &s->permits);
            }
            uint64_t size = polled[i].revents & POLLOUT ? may_send(load, s, is_over) : 0;
            ssize_t put = size ? send(fds[i], load->chunk + s->sent % load->size, size, MSG_DONTWAIT | MSG_NOSIGNAL) : 0;
            if (put > 0) s->sent += put;
            if (got == 0 || (put < 0 && errno != EAGAIN) || polled[i].revents & (POLLERR | POLLNVAL)) {
                if (!load->obeys) close(fds[i]);
                polled[i].fd = -1;
                open--;
            }
        }
    }
    for (int i = 0; i < n; i++) frames[i] = sendings[i].sent / load->frame;
    free(polled), free(sendings), free(in);
    return begun;
}

/* Write the chunk on one connection after the other, `count` times, one each `interval` ns; returns when it began.

   Late writes are made up for, each by itself. Answers are left unread up to the end, and thrown away then and when
   they are many. Returns -1 if a connection fails. */
int64_t send_paced(const int *fds, int n, const uint8_t *chunk, int64_t size, int64_t interval, int64_t count) {
    int64_t begun = now_ns();
    uint8_t *in = malloc(AT_ONCE);
    for (int64_t i = 0; i < count; i++) {
        sleep_until(begun + i * interval);
        int fd = fds[i % n];
        while (recv(fd, in, AT_ONCE, MSG_DONTWAIT) > 0) {}
        if (send_whole(fd, chunk, size)) {
            begun = -1;
            break;
        }
    }
    free(in);
    return begun;
}

/* Send a frame each `interval` ns, on one connection after the other, and wait for the answer of each; `took` gets ns for
   each. The ids of each connection begin with `sequence`. Returns 0, -1 on failure. */
int ask(const int *fds, int n, uint8_t *frame, const int64_t size, int64_t sequence_at, int64_t sequence,
        int64_t interval, int64_t count, int64_t *took) {
    uint8_t in[4096];
    int64_t begun = now_ns();
    for (int64_t i = 0; i < count; i++) {
        Walk w = {0};
        int fd = fds[i % n];
        sleep_until(begun + i * interval);
        put_sequence(frame + sequence_at, sequence + i / n);
        int64_t asked = now_ns();
        if (send_whole(fd, frame, size)) return -1;
        while (w.frames == 0) {
            ssize_t got = recv(fd, in, sizeof in, 0);
            if (got < 0 && errno == EINTR) continue;
            if (got <= 0) return -1;
            walk(&w, in, got, NULL);
        }
        took[i] = now_ns() - asked;
    }
    return 0;
}

/* ---- many connections at once */

#define EVENTS 256

typedef struct {
    int fd;
    Walk walk;
} Meeting;

static void watch(int queue, Meeting *meeting, uint32_t events, int operation) {
    struct epoll_event event = {.events = events, .data.ptr = meeting};
    epoll_ctl(queue, operation, meeting->fd, &event);
}

/* Whether the first whole frame has come with what can be read now; then nothing is watched for any more. */
static int has_frame(int queue, Meeting *meeting) {
    uint8_t in[4096];
    ssize_t got = recv(meeting->fd, in, sizeof in, MSG_DONTWAIT);
    if (got < 0 && errno == EAGAIN) return 0;
    if (got > 0) walk(&meeting->walk, in, got, NULL);
    if (got > 0 && meeting->walk.frames == 0) return 0;
    epoll_ctl(queue, EPOLL_CTL_DEL, meeting->fd, NULL);
    return got > 0;
}

/* Connect `n` times to a port of the loopback interface, all at once, and get the answer to `hello` on each.

   Returns how many did, when all have or nothing has happened for `patience` ms; `fds` gets all the sockets, `took` the
   ns from the first step to the last answer. */
int connect_many(int port, int n, const uint8_t *hello, int64_t size, int patience, int *fds, int64_t *took) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    Meeting *meetings = calloc(n, sizeof *meetings);
    struct epoll_event events[EVENTS];
    int queue = epoll_create1(EPOLL_CLOEXEC), done = 0, ready;
    int64_t begun = now_ns();
    for (int i = 0; i < n; i++) {
        fds[i] = meetings[i].fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        if (fds[i] < 0) continue;
        connect(fds[i], (struct sockaddr *)&to, sizeof to);
        watch(queue, &meetings[i], EPOLLOUT, EPOLL_CTL_ADD);
    }
    while (done < n && (ready = epoll_wait(queue, events, EVENTS, patience)) > 0) {
        for (int i = 0; i < ready; i++) {
            Meeting *meeting = events[i].data.ptr;
            if (events[i].events & EPOLLOUT) {
                if (!send_whole(meeting->fd, hello, size)) watch(queue, meeting, EPOLLIN, EPOLL_CTL_MOD);
                else epoll_ctl(queue, EPOLL_CTL_DEL, meeting->fd, NULL);
            } else if (has_frame(queue, meeting)) {
                done++;
            }
        }
    }
    *took = now_ns() - begun;
    close(queue);
    free(meetings);
    return done;
}

/* Accept `n` connections and answer the first frame of each.

   Returns how many there were, when all have come or nothing has happened for `patience` ms; `fds` gets the accepted
   sockets, -1 where none is. */
int welcome_many(int listener, int n, const uint8_t *answer, int64_t size, int patience, int *fds) {
    Meeting *meetings = calloc(n + 1, sizeof *meetings), *door = &meetings[n];
    struct epoll_event events[EVENTS];
    int queue = epoll_create1(EPOLL_CLOEXEC), accepted = 0, done = 0, ready;
    for (int i = 0; i < n; i++) fds[i] = -1;
    door->fd = listener;
    watch(queue, door, EPOLLIN, EPOLL_CTL_ADD);
    while (done < n && (ready = epoll_wait(queue, events, EVENTS, patience)) > 0) {
        for (int i = 0; i < ready; i++) {
            Meeting *meeting = events[i].data.ptr;
            if (meeting == door) {
                int fd = accepted < n ? accept4(listener, NULL, NULL, SOCK_CLOEXEC) : -1;
                if (fd < 0) continue;
                fds[accepted] = meetings[accepted].fd = fd;
                watch(queue, &meetings[accepted++], EPOLLIN, EPOLL_CTL_ADD);
            } else if (has_frame(queue, meeting)) {
                done += !send_whole(meeting->fd, answer, size);
            }
        }
    }
    close(queue);
    free(meetings);
    return done;
}

/* Reset the connections: thousands of ended ones are not to wait for ever for late packets. */
void reset_all(const int *fds, int n) {
    struct linger at_once = {1, 0};
    for (int i = 0; i < n; i++) {
        if (fds[i] < 0) continue;
        setsockopt(fds[i], SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
        close(fds[i]);
    }
}
