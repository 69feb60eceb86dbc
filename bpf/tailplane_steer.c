// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// Receive-side scaling for a device that has none: at the egress of a veth pair's one end, chooses the
// queue at which a frame arrives at the other end. As a NIC does it (Microsoft, "RSS hashing functions"):
//
//   whole TCP and UDP over IPv4                          the Toeplitz hash of addresses and ports
//   whole TCP and UDP over IPv6, no extension headers    the same
//   all else over IPv4 and IPv6, fragments               the Toeplitz hash of the addresses
//   all else                                             queue 0
//
// The hash's low bits name an entry of the indirection table, and the entry names the queue. The table is
// memory that its owner has mapped: an entry that is changed there holds for every frame that has not
// passed this program yet.
//
// veth takes over the queue number of the sending end, which the kernel takes from the recorded receive
// queue: the queue plus one. Where the sender is a socket of the kernel that has chosen a queue, the kernel
// may keep to it as long as bytes of its own are unacknowledged: such a flow follows a change late, with
// nothing under way that could be overtaken.
//
// A frame whose socket carries a mark of ours goes to the queue that the mark names: a probe, which comes
// behind all that the queue was given before.
//
// Understands untagged Ethernet II. Loaded by core/nic/src/steer_program.rs, which sets the tables of the
// hash before loading. Rebuilt by scripts/bpf.sh.

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

// Entries of the table: a power of two.
#define ENTRIES 128
// Bytes of addresses, and of addresses and ports, over IPv4 and over IPv6.
#define ADDRESSES 8
#define TUPLE 12
#define ADDRESSES6 32
#define TUPLE6 36
// The upper half of a probe's mark; the lower half is the queue.
#define PROBE_MARK 0x54500000
#define PROBE_MASK 0xffff0000

// Set at load time: what each value of each byte of the tuple contributes to the hash.
const volatile __u32 toeplitz[TUPLE6][256] = {};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, ENTRIES);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, __u64);
} indirection SEC(".maps");

// What the bytes of a tuple contribute from one position to another. Contributions add up by exclusive or.
static __always_inline __u32 hash_of(const __u8 *tuple, int from, int to)
{
	__u32 hash = 0;

#pragma unroll
	for (int i = 0; i < TUPLE6; i++)
		if (i >= from && i < to)
			hash ^= toeplitz[i][tuple[i]];
	return hash;
}

static __always_inline void steer_by(struct __sk_buff *skb, __u32 hash)
{
	__u32 entry = hash % ENTRIES;
	__u64 *queue = bpf_map_lookup_elem(&indirection, &entry);

	if (queue)
		skb->queue_mapping = (__u16)*queue + 1;
}

static __always_inline void steer_ipv4(struct __sk_buff *skb)
{
	struct iphdr ip;
	__u8 tuple[TUPLE];
	__u32 hash;
	int whole;

	if (bpf_skb_load_bytes(skb, ETH_HLEN, &ip, sizeof(ip)) || ip.ihl < 5)
		return;
	__builtin_memcpy(tuple, &ip.saddr, 4);
	__builtin_memcpy(tuple + 4, &ip.daddr, 4);
	// Bits 0 to 12 are the offset, bit 13 says that more fragments follow (RFC 791 section 3.1).
	whole = !(ip.frag_off & bpf_htons(0x3fff)) &&
		(ip.protocol == IPPROTO_TCP || ip.protocol == IPPROTO_UDP) &&
		!bpf_skb_load_bytes(skb, ETH_HLEN + ip.ihl * 4, tuple + ADDRESSES, TUPLE - ADDRESSES);
	hash = hash_of(tuple, 0, ADDRESSES);
	if (whole)
		hash ^= hash_of(tuple, ADDRESSES, TUPLE);
	steer_by(skb, hash);
}

static __always_inline void steer_ipv6(struct __sk_buff *skb)
{
	struct ipv6hdr ip;
	__u8 tuple[TUPLE6];
	__u32 hash;
	int whole;

	if (bpf_skb_load_bytes(skb, ETH_HLEN, &ip, sizeof(ip)))
		return;
	__builtin_memcpy(tuple, &ip.saddr, 16);
	__builtin_memcpy(tuple + 16, &ip.daddr, 16);
	// The next header of a fragment, and of a packet with other extension headers, is an extension header.
	whole = (ip.nexthdr == IPPROTO_TCP || ip.nexthdr == IPPROTO_UDP) &&
		!bpf_skb_load_bytes(skb, ETH_HLEN + sizeof(ip), tuple + ADDRESSES6, TUPLE6 - ADDRESSES6);
	hash = hash_of(tuple, 0, ADDRESSES6);
	if (whole)
		hash ^= hash_of(tuple, ADDRESSES6, TUPLE6);
	steer_by(skb, hash);
}

SEC("classifier")
int tailplane_steer(struct __sk_buff *skb)
{
	__u32 mark = skb->mark;

	skb->queue_mapping = 1;
	if ((mark & PROBE_MASK) == PROBE_MARK)
		skb->queue_mapping = (mark & ~PROBE_MASK) + 1;
	else if (skb->protocol == bpf_htons(ETH_P_IP))
		steer_ipv4(skb);
	else if (skb->protocol == bpf_htons(ETH_P_IPV6))
		steer_ipv6(skb);
	// Other programs may have their say.
	return TC_ACT_UNSPEC;
}

// No helper here is reserved for GPL programs.
char _license[] SEC("license") = "Apache-2.0 OR MIT";
