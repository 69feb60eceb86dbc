/* The table that packetdrill has its functions called through, as the tests of the plug-in see it. */
#ifndef PLUGIN_H
#define PLUGIN_H

#define _GNU_SOURCE
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/types.h>
#include <sys/uio.h>

struct plugin {
	void *data;
	void (*free)(void *data);
	int (*socket)(void *data, int family, int type, int protocol);
	int (*bind)(void *data, int fd, const struct sockaddr *local, socklen_t len);
	int (*listen)(void *data, int fd, int backlog);
	int (*accept)(void *data, int fd, struct sockaddr *peer, socklen_t *len);
	int (*connect)(void *data, int fd, const struct sockaddr *peer, socklen_t len);
	ssize_t (*read)(void *data, int fd, void *to, size_t len);
	ssize_t (*readv)(void *data, int fd, const struct iovec *to, int count);
	ssize_t (*recv)(void *data, int fd, void *to, size_t len, int flags);
	ssize_t (*recvfrom)(void *data, int fd, void *to, size_t len, int flags,
			    struct sockaddr *peer, socklen_t *peer_len);
	ssize_t (*recvmsg)(void *data, int fd, struct msghdr *message, int flags);
	ssize_t (*write)(void *data, int fd, const void *from, size_t len);
	ssize_t (*writev)(void *data, int fd, const struct iovec *from, int count);
	ssize_t (*send)(void *data, int fd, const void *from, size_t len, int flags);
	ssize_t (*sendto)(void *data, int fd, const void *from, size_t len, int flags,
			  const struct sockaddr *peer, socklen_t peer_len);
	ssize_t (*sendmsg)(void *data, int fd, const struct msghdr *message, int flags);
	int (*fcntl)(void *data, int fd, int command, ...);
	int (*ioctl)(void *data, int fd, unsigned long request, ...);
	int (*close)(void *data, int fd);
	int (*shutdown)(void *data, int fd, int how);
	int (*getsockopt)(void *data, int fd, int level, int name, void *value, socklen_t *len);
	int (*setsockopt)(void *data, int fd, int level, int name, const void *value, socklen_t len);
	int (*poll)(void *data, struct pollfd *polled, nfds_t count, int timeout_ms);
	int (*netdev_send)(void *data, const void *packet, size_t len);
	int (*netdev_receive)(void *data, void *packet, size_t *len, long long *at_us);
	int (*usleep)(void *data, useconds_t us);
	int (*gettimeofday)(void *data, struct timeval *time, struct timezone *zone);
	int (*epoll_create)(void *data, int size);
	int (*epoll_ctl)(void *data, int set, int operation, int fd, struct epoll_event *wanted);
	int (*epoll_wait)(void *data, int set, struct epoll_event *found, int most, int timeout_ms);
	int (*pipe)(void *data, int ends[2]);
	ssize_t (*splice)(void *data, int from, loff_t *from_offset, int to, loff_t *to_offset,
			  size_t len, unsigned int flags);
};

#endif
