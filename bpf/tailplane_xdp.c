// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// Splits an interface between the dataplane and the kernel: frames for the dataplane's own addresses go
// to the AF_XDP socket of the queue that they came in on, all else goes to the kernel. One NIC serves both.
//
// Without ports, an address is the dataplane's alone: all packets to it (all protocols, all fragments, all
// extension headers), and what asks for its link address: over IPv4 the ARP requests and replies whose
// target it is, over IPv6 the neighbour solicitations for it to its solicited-node group. All other
// multicast, router advertisements included, stays with the kernel.
//
// With ports, the address is shared: only whole TCP and UDP packets to one of the ports are the
// dataplane's, over IPv6 those without extension headers. ARP, neighbour discovery, ICMP and fragments stay
// with the kernel, which owns the address then.
//
// An IPv6 address at which tunnels end is shared likewise: GRE to it, right after the IPv6 header, is the
// dataplane's; neighbour discovery and all else stay with the kernel.
//
// Understands untagged Ethernet II. Loaded by core/nic/src/xdp_program.rs, which sets the
// constants below before loading. Rebuilt by scripts/bpf.sh.

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/in6.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define MAX_ADDRESSES 8
#define MAX_PORTS 16
#define MAX_TUNNELS 8
#define MAX_QUEUES 256
// The type of a neighbour solicitation (RFC 4861 section 4.3).
#define NEIGHBOUR_SOLICITATION 135

// Set at load time; in network byte order. The verifier sees them as constants and drops the code
// that they rule out.
const volatile __u32 address_count = 0;
const volatile __u32 addresses[MAX_ADDRESSES] = {};
const volatile __u32 address6_count = 0;
const volatile __u64 addresses6[MAX_ADDRESSES][2] = {};
const volatile __u32 port_count = 0;
const volatile __u16 ports[MAX_PORTS] = {};
const volatile __u32 tunnel_count = 0;
const volatile __u64 tunnels[MAX_TUNNELS][2] = {};

struct {
	__uint(type, BPF_MAP_TYPE_XSKMAP);
	__uint(max_entries, MAX_QUEUES);
	__type(key, __u32);
	__type(value, __u32);
} sockets SEC(".maps");

enum counter { REDIRECTED, PASSED, COUNTERS };

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, COUNTERS);
	__type(key, __u32);
	__type(value, __u64);
} counters SEC(".maps");

struct arp_ipv4 {
	__be16 hardware;
	__be16 protocol;
	__u8 hardware_len;
	__u8 protocol_len;
	__be16 operation;
	__u8 sender_mac[ETH_ALEN];
	__u8 sender_ip[4];
	__u8 target_mac[ETH_ALEN];
	__u8 target_ip[4];
} __attribute__((packed));

struct neighbour_solicitation {
	__u8 type;
	__u8 code;
	__be16 checksum;
	__be32 reserved;
	__u8 target[16];
} __attribute__((packed));

static __always_inline void count(__u32 which)
{
	__u64 *counter = bpf_map_lookup_elem(&counters, &which);
	if (counter)
		*counter += 1;
}

static __always_inline int is_own_address(__be32 address)
{
#pragma unroll
	for (int i = 0; i < MAX_ADDRESSES; i++)
		if (i < address_count && addresses[i] == address)
			return 1;
	return 0;
}

static __always_inline int is_own_port(__be16 port)
{
#pragma unroll
	for (int i = 0; i < MAX_PORTS; i++)
		if (i < port_count && ports[i] == port)
			return 1;
	return 0;
}

static __always_inline int is_own_arp(void *data, void *end)
{
	struct arp_ipv4 *arp = data;
	__be32 target;

	if (port_count || (void *)(arp + 1) > end)
		return 0;
	if (arp->hardware != bpf_htons(1) || arp->protocol != bpf_htons(ETH_P_IP) ||
	    arp->hardware_len != ETH_ALEN || arp->protocol_len != 4)
		return 0;
	__builtin_memcpy(&target, arp->target_ip, sizeof(target));
	return is_own_address(target);
}

static __always_inline int is_own_ipv4(void *data, void *end)
{
	struct iphdr *ip = data;
	__be16 *transport;

	if ((void *)(ip + 1) > end || !is_own_address(ip->daddr))
		return 0;
	if (!port_count)
		return 1;
	if (ip->protocol != IPPROTO_TCP && ip->protocol != IPPROTO_UDP)
		return 0;
	// Bits 0 to 12 are the offset, bit 13 says that more fragments follow (RFC 791 section 3.1).
	if (ip->frag_off & bpf_htons(0x3fff))
		return 0;
	transport = data + ip->ihl * 4;
	if (ip->ihl < 5 || (void *)(transport + 2) > end)
		return 0;
	return is_own_port(transport[1]);
}

static __always_inline int is_own_address6(const __u64 address[2])
{
#pragma unroll
	for (int i = 0; i < MAX_ADDRESSES; i++)
		if (i < address6_count && addresses6[i][0] == address[0] && addresses6[i][1] == address[1])
			return 1;
	return 0;
}

static __always_inline int is_tunnel_end(const __u64 address[2])
{
#pragma unroll
	for (int i = 0; i < MAX_TUNNELS; i++)
		if (i < tunnel_count && tunnels[i][0] == address[0] && tunnels[i][1] == address[1])
			return 1;
	return 0;
}

// A neighbour solicitation for an own address, to the solicited-node group of that address: ff02::1:ff00:0/104
// and the address's last 24 bits (RFC 4291 section 2.7.1).
static __always_inline int is_own_solicitation(struct ipv6hdr *ip, const __u64 to[2], void *end)
{
	struct neighbour_solicitation *message = (void *)(ip + 1);
	__u64 target[2], group;

	if (ip->nexthdr != IPPROTO_ICMPV6 || (void *)(message + 1) > end ||
	    message->type != NEIGHBOUR_SOLICITATION)
		return 0;
	__builtin_memcpy(target, message->target, sizeof(target));
	group = bpf_cpu_to_be64(0x1ff000000) | (target[1] & bpf_cpu_to_be64(0xffffff));
	if (to[0] != bpf_cpu_to_be64(0xff02000000000000) || to[1] != group)
		return 0;
	return is_own_address6(target);
}

static __always_inline int is_own_ipv6(void *data, void *end)
{
	struct ipv6hdr *ip = data;
	__be16 *transport = (void *)(ip + 1);
	__u64 to[2];

	if ((void *)(ip + 1) > end)
		return 0;
	__builtin_memcpy(to, &ip->daddr, sizeof(to));
	if (ip->nexthdr == IPPROTO_GRE && is_tunnel_end(to))
		return 1;
	if (!port_count)
		return is_own_address6(to) || is_own_solicitation(ip, to, end);
	// A fragment's next header is the fragment header: none is taken.
	if ((ip->nexthdr != IPPROTO_TCP && ip->nexthdr != IPPROTO_UDP) || !is_own_address6(to))
		return 0;
	return (void *)(transport + 2) <= end && is_own_port(transport[1]);
}

static __always_inline int split(struct xdp_md *context)
{
	void *data = (void *)(long)context->data;
	void *end = (void *)(long)context->data_end;
	struct ethhdr *ethernet = data;
	int own = 0;
	long action = XDP_PASS;

	if ((void *)(ethernet + 1) <= end) {
		if (ethernet->h_proto == bpf_htons(ETH_P_IP))
			own = is_own_ipv4(ethernet + 1, end);
		else if (ethernet->h_proto == bpf_htons(ETH_P_ARP))
			own = is_own_arp(ethernet + 1, end);
		else if (ethernet->h_proto == bpf_htons(ETH_P_IPV6))
			own = is_own_ipv6(ethernet + 1, end);
	}
	// A queue without a socket passes to the kernel: the last argument is the answer then.
	if (own)
		action = bpf_redirect_map(&sockets, context->rx_queue_index, XDP_PASS);
	count(action == XDP_REDIRECT ? REDIRECTED : PASSED);
	return action;
}

SEC("xdp")
int tailplane_xdp(struct xdp_md *context)
{
	return split(context);
}

// The same for frames of several buffers, whose headers lie in the first one: Linux 5.18 and later.
SEC("xdp.frags")
int tailplane_xdp_frags(struct xdp_md *context)
{
	return split(context);
}

// No helper here is reserved for GPL programs.
char _license[] SEC("license") = "Apache-2.0 OR MIT";
