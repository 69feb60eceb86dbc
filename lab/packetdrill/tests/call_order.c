/* Plays packetdrill's call order to the plug-in: the script's thread sends and receives packets and moves the clock, and a
 * second one is in the system call that blocks. The argument is the shared object's path. */
#include "plugin.h"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

static struct plugin p;

#define CHECK(condition)                                                                 \
	do {                                                                             \
		if (!(condition)) {                                                      \
			fprintf(stderr, "%d: %s (errno %d)\n", __LINE__, #condition, errno); \
			exit(1);                                                         \
		}                                                                        \
	} while (0)
#define FAILS(call, number) CHECK((call) == -1 && errno == (number))

enum { FIN = 1, SYN = 2, RST = 4, PSH = 8, ACK = 16 };

/* One connection as packetdrill's end sees it. */
struct peer {
	uint16_t port, their_port;
	uint32_t seq, ack;
};

static const uint32_t REMOTE = 0xc0000201, LOCAL = 0xc0a80001;

static uint32_t sum_of(const uint8_t *bytes, size_t len, uint32_t sum)
{
	for (size_t at = 0; at < len; at++)
		sum += at % 2 ? bytes[at] : bytes[at] << 8;
	return sum;
}

static uint16_t folded(uint32_t sum)
{
	while (sum >> 16)
		sum = (sum & 0xffff) + (sum >> 16);
	return htons(~sum);
}

static void put16(uint8_t *at, uint16_t value) { at[0] = value >> 8; at[1] = value; }
static void put32(uint8_t *at, uint32_t value) { put16(at, value >> 16); put16(at + 2, value); }
static uint16_t get16(const uint8_t *at) { return at[0] << 8 | at[1]; }
static uint32_t get32(const uint8_t *at) { return (uint32_t)get16(at) << 16 | get16(at + 2); }

/* Sends a segment of the peer's; a SYN has the options that scripts have: MSS 1460, SACK, window scale 7. */
static void say(struct peer *peer, int flags, const char *text)
{
	static const uint8_t options[] = { 2, 4, 0x05, 0xb4, 1, 1, 4, 2, 1, 3, 3, 7 };
	uint8_t packet[2048] = { 0 };
	size_t len = strlen(text), extra = flags & SYN ? sizeof(options) : 0;
	size_t whole = 40 + extra + len;
	uint8_t *tcp = packet + 20;
	uint16_t check;

	packet[0] = 0x45;
	put16(packet + 2, whole);
	packet[8] = 64;
	packet[9] = IPPROTO_TCP;
	put32(packet + 12, REMOTE);
	put32(packet + 16, LOCAL);
	check = folded(sum_of(packet, 20, 0));
	memcpy(packet + 10, &check, 2);
	put16(tcp, peer->port);
	put16(tcp + 2, peer->their_port);
	put32(tcp + 4, peer->seq);
	put32(tcp + 8, peer->ack);
	tcp[12] = (20 + extra) / 4 << 4;
	tcp[13] = flags;
	put16(tcp + 14, 32792);
	memcpy(tcp + 20, options, extra);
	memcpy(tcp + 20 + extra, text, len);
	check = folded(sum_of(tcp, whole - 20, sum_of(packet + 12, 8, IPPROTO_TCP + whole - 20)));
	memcpy(tcp + 16, &check, 2);
	CHECK(p.netdev_send(p.data, packet, whole) == 0);
	peer->seq += len + !!(flags & (SYN | FIN));
}

/* What the stack sends next: its flags, its payload in `text`, when in `at_us`. */
static int hear(struct peer *peer, char *text, size_t *len, long long *at_us)
{
	uint8_t packet[4096];
	size_t count = sizeof(packet);
	long long at;
	const uint8_t *tcp = packet + 20;

	CHECK(p.netdev_receive(p.data, packet, &count, &at) == 0);
	CHECK(count >= 40 && packet[0] == 0x45 && get16(packet + 2) == count);
	CHECK(folded(sum_of(packet, 20, 0)) == 0);
	CHECK(folded(sum_of(tcp, count - 20, sum_of(packet + 12, 8, IPPROTO_TCP + count - 20))) == 0);
	CHECK(get32(packet + 12) == LOCAL && get32(packet + 16) == REMOTE);
	CHECK(peer->their_port == 0 || get16(tcp) == peer->their_port);
	peer->their_port = get16(tcp);
	size_t header = (tcp[12] >> 4) * 4;
	*len = count - 20 - header;
	memcpy(text, tcp + header, *len);
	if (at_us)
		*at_us = at;
	peer->ack = get32(tcp + 4) + *len + !!(tcp[13] & (SYN | FIN));
	if (tcp[13] & SYN) {
		/* Scripts name the window scale of 8 that Linux has with its largest window. */
		int scale = -1;
		for (size_t at = 20; at < header && tcp[at]; at += tcp[at] == 1 ? 1 : tcp[at + 1])
			if (tcp[at] == 3)
				scale = tcp[at + 2];
		CHECK(scale == 8);
	}
	return tcp[13];
}

static long long now_us(void)
{
	struct timeval time;

	CHECK(p.gettimeofday(p.data, &time, NULL) == 0);
	return time.tv_sec * 1000000LL + time.tv_usec;
}

/* A system call on a thread of its own, as packetdrill runs those that block. */
struct blocking {
	pthread_t thread;
	volatile pid_t id;
	volatile int is_over;
	int fd, kind;
	ssize_t result;
	long long ended_us;
	char text[64];
	struct sockaddr_in peer;
};

enum { READ, ACCEPT, POLL, CONNECT, WAIT };

static void *run(void *argument)
{
	struct blocking *call = argument;
	struct pollfd polled = { .fd = call->fd, .events = POLLIN };
	struct epoll_event event;
	socklen_t len = sizeof(call->peer);

	call->id = syscall(SYS_gettid);
	if (call->kind == READ)
		call->result = p.read(p.data, call->fd, call->text, sizeof(call->text));
	else if (call->kind == ACCEPT)
		call->result = p.accept(p.data, call->fd, (struct sockaddr *)&call->peer, &len);
	else if (call->kind == POLL)
		call->result = p.poll(p.data, &polled, 1, 30);
	else if (call->kind == WAIT)
		call->result = p.epoll_wait(p.data, call->fd, &event, 1, -1);
	else
		call->result = p.connect(p.data, call->fd, (struct sockaddr *)&call->peer, len);
	/* The clock stands meanwhile. */
	usleep(2000);
	call->ended_us = now_us();
	call->is_over = 1;
	return NULL;
}

/* Whether a thread sleeps, as packetdrill finds out. */
static int sleeps(pid_t id)
{
	char path[64], line[256];
	snprintf(path, sizeof(path), "/proc/self/task/%d/stat", id);
	FILE *file = fopen(path, "r");
	CHECK(file && fgets(line, sizeof(line), file));
	fclose(file);
	return *(strrchr(line, ')') + 2) == 'S';
}

static void begin(struct blocking *call, int kind, int fd)
{
	memset(call, 0, sizeof(*call));
	call->kind = kind;
	call->fd = fd;
	if (kind == CONNECT) {
		call->peer.sin_family = AF_INET;
		call->peer.sin_port = htons(8080);
		call->peer.sin_addr.s_addr = htonl(REMOTE);
	}
	CHECK(pthread_create(&call->thread, NULL, run, call) == 0);
	/* One that spun would never be seen asleep for long. */
	for (int seen = 0; seen < 20; usleep(1000))
		seen = call->id && sleeps(call->id) ? seen + 1 : 0;
	CHECK(!call->is_over);
}

static ssize_t end(struct blocking *call)
{
	CHECK(pthread_join(call->thread, NULL) == 0);
	return call->result;
}

static void time_passes_as_it_is_asked_for(void)
{
	long long before = now_us(), after = now_us();
	CHECK(after == before + 1);
	CHECK(p.usleep(p.data, 3000000) == 0);
	CHECK(now_us() == after + 3000001);
	/* The last microseconds are spun. */
	long long until = now_us() + 20;
	int spins = 0;
	while (now_us() < until)
		spins++;
	CHECK(spins < 20);
}

/* socket, bind, listen; a handshake; accept, which blocks meanwhile. */
static int open_passively(struct peer *peer, int *listener)
{
	struct sockaddr_in local = { .sin_family = AF_INET, .sin_port = htons(8080) };
	struct blocking call;
	char text[2048];
	size_t len;
	int one = 1, fd;

	*listener = p.socket(p.data, AF_INET, SOCK_STREAM, IPPROTO_TCP);
	CHECK(*listener >= 0);
	CHECK(p.setsockopt(p.data, *listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) == 0);
	CHECK(p.bind(p.data, *listener, (struct sockaddr *)&local, sizeof(local)) == 0);
	CHECK(p.listen(p.data, *listener, 1) == 0);
	begin(&call, ACCEPT, *listener);
	*peer = (struct peer){ .port = 40000, .their_port = 8080 };
	say(peer, SYN, "");
	CHECK(hear(peer, text, &len, NULL) == (SYN | ACK) && len == 0);
	say(peer, ACK, "");
	fd = end(&call);
	CHECK(fd >= 0 && ntohs(call.peer.sin_port) == 40000);
	CHECK(ntohl(call.peer.sin_addr.s_addr) == REMOTE);
	return fd;
}

/* What is written leaves in equal segments, is sent again when it is due, and ends when it is acknowledged. */
static void data_leaves_and_is_sent_again(struct peer *peer, int fd)
{
	char text[2048], data[4000];
	struct iovec parts[2] = { { data, 1500 }, { data + 1500, 2500 } };
	long long sent_us, again_us;
	size_t len;
	int value;

	for (size_t at = 0; at < sizeof(data); at++)
		data[at] = at % 251;
	CHECK(p.writev(p.data, fd, parts, 2) == 4000);
	for (size_t at = 0; at < sizeof(data); at += len) {
		/* What was received before is acknowledged first. */
		do
			hear(peer, text, &len, &sent_us);
		while (len == 0 && at == 0);
		CHECK(len == (at < 2920 ? 1460 : 1080) && memcmp(text, data + at, len) == 0);
	}
	CHECK(p.ioctl(p.data, fd, TIOCOUTQ, &value) == 0 && value == 4000);
	/* Nothing is acknowledged: the tail is probed for, then the first segment is sent again. */
	hear(peer, text, &len, &again_us);
	CHECK(len > 0 && again_us > sent_us && again_us - sent_us < 1300000);
}

static void bytes_come_and_calls_that_block_wake(struct peer *peer, int fd)
{
	struct blocking call;
	char text[64], more[8];
	struct iovec parts[2] = { { text, 3 }, { more, sizeof(more) } };
	struct msghdr message = { .msg_iov = parts, .msg_iovlen = 2 };
	int value;

	begin(&call, READ, fd);
	say(peer, ACK | PSH, "hello");
	CHECK(end(&call) == 5 && memcmp(call.text, "hello", 5) == 0);
	say(peer, ACK | PSH, "scatter");
	CHECK(p.ioctl(p.data, fd, FIONREAD, &value) == 0 && value == 7);
	CHECK(p.recv(p.data, fd, text, sizeof(text), MSG_PEEK) == 7);
	CHECK(p.readv(p.data, fd, parts, 2) == 7 && memcmp(text, "sca", 3) == 0);
	CHECK(memcmp(more, "tter", 4) == 0);
	say(peer, ACK | PSH, "message");
	CHECK(p.recvmsg(p.data, fd, &message, 0) == 7 && memcmp(more, "sage", 4) == 0);
	CHECK(message.msg_flags == 0 && message.msg_controllen == 0);
	/* Of a stream, MSG_TRUNC takes bytes without copying them. */
	say(peer, ACK | PSH, "trunc");
	CHECK(p.recv(p.data, fd, text, 5, MSG_TRUNC) == 5 && memcmp(text, "mes", 3) == 0);
	parts[1].iov_base = NULL;
	FAILS((int)p.readv(p.data, fd, parts, 2), EFAULT);
	FAILS((int)p.writev(p.data, fd, parts, 2), EFAULT);
	FAILS((int)p.readv(p.data, fd, NULL, 1), EFAULT);
	FAILS((int)p.read(p.data, fd, NULL, 1), EFAULT);
	FAILS(p.recvfrom(p.data, fd, text, 1, MSG_DONTWAIT, NULL, NULL), EAGAIN);
	/* A time-out ends a call in its own moment, though the script sleeps for longer. */
	long long begun = now_us();
	begin(&call, POLL, fd);
	CHECK(p.usleep(p.data, 500000) == 0);
	CHECK(end(&call) == 0 && now_us() >= begun + 500000);
	CHECK(call.ended_us >= begun + 30000 && call.ended_us < begun + 30100);
}

static void sets_report(struct peer *peer, int fd)
{
	struct epoll_event event = { .events = EPOLLIN | EPOLLET, .data.u64 = 77 }, found;
	struct blocking call;
	char text[16];
	int set = p.epoll_create(p.data, 1);

	CHECK(set >= 0);
	CHECK(p.epoll_ctl(p.data, set, EPOLL_CTL_ADD, fd, &event) == 0);
	FAILS(p.epoll_ctl(p.data, set, EPOLL_CTL_ADD, fd, &event), EEXIST);
	CHECK(p.epoll_wait(p.data, set, &found, 1, 0) == 0);
	begin(&call, WAIT, set);
	say(peer, ACK | PSH, "event");
	CHECK(end(&call) == 1);
	say(peer, ACK | PSH, "again");
	CHECK(p.epoll_wait(p.data, set, &found, 1, 0) == 1);
	CHECK(found.events == EPOLLIN && found.data.u64 == 77);
	CHECK(p.recv(p.data, fd, text, sizeof(text), 0) == 10);
	CHECK(p.close(p.data, set) == 0);
}

static void options_and_odd_calls_say_what_linux_says(int fd)
{
	struct linger linger = { 1, 5 }, pair[2] = { { 1, 5 }, { 1, 9 } };
	struct tcp_info info;
	socklen_t len = sizeof(linger);
	int value = 0, ends[2];

	CHECK(p.fcntl(p.data, fd, F_GETFL, 0) == O_RDWR);
	CHECK(p.fcntl(p.data, fd, F_SETFL, O_RDWR | O_NONBLOCK) == 0);
	CHECK(p.fcntl(p.data, fd, F_GETFL, 0) == (O_RDWR | O_NONBLOCK));
	CHECK(p.fcntl(p.data, fd, F_SETFL, O_RDWR) == 0);
	CHECK(p.setsockopt(p.data, fd, SOL_SOCKET, SO_LINGER, pair, sizeof(pair)) == 0);
	FAILS(p.setsockopt(p.data, fd, SOL_SOCKET, SO_LINGER, pair, 7), EINVAL);
	linger.l_linger = 0;
	CHECK(p.getsockopt(p.data, fd, SOL_SOCKET, SO_LINGER, &linger, &len) == 0);
	CHECK(linger.l_onoff == 1 && linger.l_linger == 5 && len == 8);
	linger.l_onoff = 0;
	CHECK(p.setsockopt(p.data, fd, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger)) == 0);
	len = sizeof(info);
	CHECK(p.getsockopt(p.data, fd, IPPROTO_TCP, TCP_INFO, &info, &len) == 0 && len == 104);
	CHECK(info.tcpi_state == TCP_ESTABLISHED && info.tcpi_snd_mss == 1460);
	CHECK(info.tcpi_rcv_wscale == 8 && info.tcpi_snd_wscale == 7 && info.tcpi_pmtu == 1500);
	len = sizeof(value);
	CHECK(p.getsockopt(p.data, fd, SOL_SOCKET, SO_ERROR, &value, &len) == 0 && value == 0);
	FAILS(p.setsockopt(p.data, fd, IPPROTO_TCP, 99, &value, sizeof(value)), ENOPROTOOPT);
	FAILS(p.socket(p.data, AF_UNIX, SOCK_STREAM, 0), EAFNOSUPPORT);
	FAILS(p.pipe(p.data, ends), ENOSYS);
	FAILS((int)p.splice(p.data, fd, NULL, fd, NULL, 1, 0), EINVAL);
	FAILS(p.ioctl(p.data, fd, 1, &value), ENOTTY);
}

/* connect blocks for its SYN-ACK; a datagram is a packet; an end is a FIN. */
static void opens_actively_and_ends(void)
{
	struct peer peer = { .port = 8080 };
	struct blocking call;
	char text[2048];
	size_t len;
	int fd = p.socket(p.data, AF_INET, SOCK_STREAM, 0);
	struct iovec part = { "ask", 3 };
	struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1 };

	begin(&call, CONNECT, fd);
	CHECK(hear(&peer, text, &len, NULL) == SYN);
	say(&peer, SYN | ACK, "");
	CHECK(hear(&peer, text, &len, NULL) == ACK);
	CHECK(end(&call) == 0);
	CHECK(p.sendmsg(p.data, fd, &message, MSG_NOSIGNAL) == 3);
	CHECK(hear(&peer, text, &len, NULL) == (PSH | ACK) && len == 3 && memcmp(text, "ask", 3) == 0);
	say(&peer, ACK | PSH, "answer");
	CHECK(p.read(p.data, fd, text, sizeof(text)) == 6);
	CHECK(p.shutdown(p.data, fd, SHUT_WR) == 0);
	CHECK(hear(&peer, text, &len, NULL) == (FIN | ACK));
	FAILS((int)p.write(p.data, fd, "x", 1), EPIPE);
	say(&peer, FIN | ACK, "");
	CHECK(hear(&peer, text, &len, NULL) == ACK);
	CHECK(p.read(p.data, fd, text, sizeof(text)) == 0);
	CHECK(p.close(p.data, fd) == 0);
	FAILS(p.close(p.data, fd), EBADF);
}

static void datagrams_are_packets(void)
{
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(9) };
	uint8_t packet[128];
	size_t count = sizeof(packet);
	long long at;
	int fd = p.socket(p.data, AF_INET, SOCK_DGRAM, 0);

	to.sin_addr.s_addr = htonl(REMOTE);
	CHECK(p.sendto(p.data, fd, "xyz", 3, 0, (struct sockaddr *)&to, sizeof(to)) == 3);
	CHECK(p.netdev_receive(p.data, packet, &count, &at) == 0);
	CHECK(count == 31 && packet[9] == IPPROTO_UDP && memcmp(packet + 28, "xyz", 3) == 0);
	CHECK(get16(packet + 22) == 9);
	CHECK(p.close(p.data, fd) == 0);
}

int main(int count, char **arguments)
{
	void (*init)(const char *, struct plugin *);
	struct peer peer;
	int listener, fd;

	CHECK(count == 2);
	void *object = dlopen(arguments[1], RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE | RTLD_DEEPBIND);
	if (!object) {
		fprintf(stderr, "%s\n", dlerror());
		return 1;
	}
	*(void **)&init = dlsym(object, "packetdrill_interface_init");
	CHECK(init);
	init("local_ip=192.168.0.1,congestion=cubic", &p);
	time_passes_as_it_is_asked_for();
	fd = open_passively(&peer, &listener);
	bytes_come_and_calls_that_block_wake(&peer, fd);
	sets_report(&peer, fd);
	options_and_odd_calls_say_what_linux_says(fd);
	data_leaves_and_is_sent_again(&peer, fd);
	CHECK(p.close(p.data, fd) == 0 && p.close(p.data, listener) == 0);
	p.free(p.data);
	init(NULL, &p);
	opens_actively_and_ends();
	datagrams_are_packets();
	p.free(p.data);
	return 0;
}
