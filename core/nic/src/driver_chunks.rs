//! What drivers make of chunks in zero-copy mode: how much of one they use, and whether they keep it.

/// The source of virtio_net.
pub(crate) const VIRTIO: &str = "drivers/net/virtio_net.c, Linux 6.12";

/// Of the room behind the headroom of a chunk, a driver uses a multiple of so many bytes in zero-copy mode:
/// `SRRCTL.BSIZEPKT` of Intel's 1 and 10 gigabit devices counts KiB (igb_main.c, igc_main.c, ixgbe_main.c), the receive
/// context of i40e and ice 128 bytes, and so does the kernel for all drivers (net/xdp/xsk_buff_pool.c); Linux 6.12.
pub(crate) fn zero_copy_granularity(driver: &str) -> usize {
    match driver {
        "i40e" | "iavf" | "ice" | "mlx5_core" | "virtio_net" | "veth" => 128,
        // igb, igc, ixgbe; a driver that was not read gets the coarsest that is known.
        _ => 1024,
    }
}

/// The source of a driver that in zero-copy mode copies the packets which the program passes to the kernel, and keeps
/// their chunks; none of a driver that was not read.
pub fn copies_passed(driver: &str) -> Option<&'static str> {
    Some(match driver {
        "igb" => "drivers/net/ethernet/intel/igb/igb_xsk.c, since Linux 6.14",
        "igc" => "drivers/net/ethernet/intel/igc/igc_main.c, Linux 6.12",
        "ixgbe" => "drivers/net/ethernet/intel/ixgbe/ixgbe_xsk.c, Linux 6.12",
        "i40e" => "drivers/net/ethernet/intel/i40e/i40e_xsk.c, Linux 6.12",
        "ice" => "drivers/net/ethernet/intel/ice/ice_xsk.c, Linux 6.12",
        "mlx5_core" => "drivers/net/ethernet/mellanox/mlx5/core/en/xsk/rx.c, Linux 6.12",
        "virtio_net" => VIRTIO,
        _ => return None,
    })
}
