// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// Splits an interface between the dataplane and the kernel: frames for the dataplane's own IPv4
// addresses go to the AF_XDP socket of the queue that they came in on, all else goes to the kernel.
// One NIC serves both.
//
// Without ports, an address is the dataplane's alone: its IPv4 (all protocols, all fragments) and
// the ARP requests and replies whose target it is. With ports, the address is shared: only whole
// TCP and UDP packets to one of the ports are the dataplane's; ARP, ICMP and fragments stay with
// the kernel, which owns the address then.
//
// An IPv6 address that ends tunnels is shared likewise: GRE to it, right after the IPv6 header, is the
// dataplane's; neighbour discovery and all else stay with the kernel.
//
// Understands untagged Ethernet II. Loaded by core/nic/src/xdp_program.rs, which sets the
// constants below before loading. Rebuilt by scripts/bpf.sh.

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define MAX_ADDRESSES 8
#define MAX_PORTS 16
#define MAX_TUNNELS 8
#define MAX_QUEUES 256

// Set at load time; in network byte order. The verifier sees them as constants and drops the code
// that they rule out.
const volatile __u32 address_count = 0;
const volatile __u32 addresses[MAX_ADDRESSES] = {};
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

static __always_inline int is_own_ipv6(void *data, void *end)
{
	struct ipv6hdr *ip = data;
	__u64 to[2];

	if ((void *)(ip + 1) > end || ip->nexthdr != IPPROTO_GRE)
		return 0;
	__builtin_memcpy(to, &ip->daddr, sizeof(to));
#pragma unroll
	for (int i = 0; i < MAX_TUNNELS; i++)
		if (i < tunnel_count && tunnels[i][0] == to[0] && tunnels[i][1] == to[1])
			return 1;
	return 0;
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
