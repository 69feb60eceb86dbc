//! Which way frames travel between a device and packet memory: of the ways that are possible, best first, the first one that
//! works. A bind that is tried decides, nothing else does: it is a parameter here.
//!
//! A way is better that receives larger packets. Of two that receive the same, zero-copy is better than copy; of two that
//! differ in multi-buffer alone, the one without it: it leaves no frame in several chunks.

use std::cmp::Reverse;

use anyhow::bail;
use nic::af_xdp::AfXdpError;
use nic::device::Device;
use nic::xdp_program::{AttachMode, XdpProgram, XdpProgramError};

use super::refusal::Refusal;
use super::way::Way;
use crate::network_config::ModeName;

/// What is known of the program that was attached.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ran<'a> {
    mode: AttachMode,
    is_multi_buffer: bool,
    /// Why an earlier attempt to attach it was refused.
    refused: Option<&'a XdpProgramError>,
}

impl<'a> Ran<'a> {
    pub(super) fn of(program: &'a XdpProgram) -> Self {
        Self {
            mode: program.mode(),
            is_multi_buffer: program.is_multi_buffer(),
            refused: program.refused(),
        }
    }

    /// Whether the driver runs the program because it is multi-buffer: it may leave any frame in several buffers then, and
    /// how large its buffers are is not known.
    fn splits_any_frame(&self, device: &Device) -> bool {
        self.mode == AttachMode::Native && self.is_multi_buffer && !device.is_jumbo()
    }
}

/// The ways that are possible with a program, of those that are wanted, best first.
fn ways(device: &Device, ran: &Ran<'_>, wanted: ModeName) -> Vec<Way> {
    let is_possible = |way: &Way| match (way.zero_copy, way.multi_buffer) {
        (_, true) if !ran.is_multi_buffer => false,
        (true, _) if ran.mode == AttachMode::Generic => false,
        (true, _) if matches!(wanted, ModeName::Copy | ModeName::Generic) => false,
        (true, true) => !declares_no_multi_buffer(device),
        (true, false) => true,
        (false, _) if wanted == ModeName::ZeroCopy => false,
        (false, true) => true,
        (false, false) => !ran.splits_any_frame(device),
    };
    let all = [(true, false), (true, true), (false, false), (false, true)];
    let way = |(zero_copy, multi_buffer)| Way {
        program: ran.mode,
        zero_copy,
        chunk: device.chunk_bytes(zero_copy),
        multi_buffer,
        tx_checksum_offload: false,
    };
    let mut ways: Vec<Way> = all.into_iter().map(way).filter(is_possible).collect();
    // The sort keeps the order of equals.
    ways.sort_by_key(|way| Reverse((way.mtu(device).receive, way.zero_copy)));
    ways
}

/// Whether the kernel declares that the driver has a frame in one buffer in zero-copy mode.
fn declares_no_multi_buffer(device: &Device) -> bool {
    let most = device.xdp.and_then(|declared| declared.zero_copy_multi_buffer);
    most.is_some_and(|most| most < 2)
}

/// What the binds that were tried refused: the first refusal of each kind.
#[derive(Debug, Default)]
struct Refused {
    zero_copy: Option<Refusal>,
    /// Of copy mode with multi-buffer.
    multi_buffer: Option<String>,
}

/// The best way that works, and why it is no better one. None where each drops frames that generic XDP receives.
///
/// # Errors
/// The mode that is demanded does not work; a bind failed for another reason.
pub(super) fn choose(
    device: &Device,
    ran: &Ran<'_>,
    wanted: ModeName,
    mut try_way: impl FnMut(Way) -> Result<(), AfXdpError>,
) -> anyhow::Result<Option<(Way, Option<Refusal>)>> {
    let mut refused = Refused::default();
    for way in ways(device, ran, wanted) {
        // Every device has this one.
        let is_certain = !way.zero_copy && !way.multi_buffer;
        match if is_certain { Ok(()) } else { try_way(way) } {
            Ok(()) => {
                let why = why(device, ran, wanted, way, refused);
                return Ok(Some((way, why)));
            }
            Err(AfXdpError::NoZeroCopy { source, .. }) => {
                refused.zero_copy.get_or_insert_with(|| Refusal::of_bind(device, &source));
            }
            Err(AfXdpError::NoQueue { source, .. }) => {
                let reason = format!(
                    "the kernel's AF_XDP takes no frames of several buffers (Linux 6.6): {source}"
                );
                refused.multi_buffer.get_or_insert(reason);
            }
            Err(error) => return Err(error.into()),
        }
    }
    if let (ModeName::ZeroCopy, Some(refusal)) = (wanted, refused.zero_copy) {
        bail!("cannot bind '{}' in zero-copy mode: found {refusal}", device.interface.name);
    }
    Ok(None)
}

/// Why there is no better way than this one, and which packets it drops.
fn why(
    device: &Device,
    ran: &Ran<'_>,
    wanted: ModeName,
    way: Way,
    refused: Refused,
) -> Option<Refusal> {
    let Refused { zero_copy, multi_buffer } = refused;
    let largest = way.mtu(device).receive;
    let drops = usize::from(largest) < device.interface.mtu;
    let cause = match &zero_copy {
        _ if device.is_jumbo() && !ran.is_multi_buffer => {
            "the kernel has no XDP programs for frames of several buffers (Linux 5.18)".to_owned()
        }
        Some(refusal) if way.zero_copy => refusal.reason.clone(),
        _ => multi_buffer.unwrap_or_else(|| {
            format!("{} puts no larger ones into a chunk in zero-copy mode", device.driver)
        }),
    };
    let mut why = match (way.program, way.zero_copy) {
        (_, true) => None,
        (AttachMode::Generic, false) => ran.refused.map(|error| Refusal::of_program(device, error)),
        (AttachMode::Native, false) if wanted == ModeName::Auto => {
            match (zero_copy, smaller_mtu(device, largest)) {
                (Some(refusal), Some(hint)) if refusal.remedy.is_none() => Some(refusal.and(hint)),
                (Some(refusal), _) => Some(refusal),
                (None, hint) => hint,
            }
        }
        (AttachMode::Native, false) => None,
    };
    if drops {
        let reason = format!("packets of more than {largest} bytes are dropped: {cause}");
        let or_mode = match wanted {
            ModeName::ZeroCopy => ", or another network.mode",
            _ => "",
        };
        let remedy = format!("use an MTU of {largest}{or_mode}");
        let dropped = Refusal { reason, remedy: Some(remedy) };
        why = Some(match why {
            None => dropped,
            Some(why) => why.and(dropped),
        });
    }
    why
}

/// That zero-copy would drop packets which `largest` does not, and with which MTU it would not. None where the kernel
/// declares that the driver has none.
fn smaller_mtu(device: &Device, largest: u16) -> Option<Refusal> {
    let has_none = device.xdp.is_some_and(|declared| !declared.zero_copy);
    let most = device.mtu(device.chunk_bytes(true), true, false).receive;
    (!has_none && most < largest).then(|| Refusal {
        reason: format!("zero-copy drops packets of more than {most} bytes"),
        remedy: Some(format!("use an MTU of {most} for zero-copy")),
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::io;

    use nic::Interface;
    use nic::xdp_features::XdpFeatures;
    use tailplane::MacAddr;

    use super::*;

    const NATIVE: Ran<'_> = Ran { mode: AttachMode::Native, is_multi_buffer: false, refused: None };
    const MULTI_BUFFER: Ran<'_> = Ran { is_multi_buffer: true, ..NATIVE };

    fn device(driver: &str, mtu: usize) -> Device {
        let (name, mac) = ("eth0".to_owned(), MacAddr::default());
        Device {
            interface: Interface { name, index: 2, mac, mtu, hardware_type: 1 },
            driver: driver.into(),
            is_up: true,
            queues: Some(4),
            queues_max: Some(8),
            rss_entries: None,
            features: BTreeMap::new(),
            xdp: None,
        }
    }

    /// The name of a way: `zero-copy`, `copy several`.
    fn name(way: Way) -> String {
        let mode = if way.zero_copy { "zero-copy" } else { "copy" };
        format!("{mode}{}", if way.multi_buffer { " several" } else { "" })
    }

    /// What is chosen of a device on which the ways of these names fail, and which ones were tried.
    fn chosen(
        device: &Device,
        ran: &Ran<'_>,
        wanted: ModeName,
        fail: &[&str],
    ) -> (anyhow::Result<Option<(String, String)>>, Vec<String>) {
        let mut tried = Vec::new();
        let found = choose(device, ran, wanted, |way| {
            tried.push(name(way));
            let (interface, queue) = ("eth0".to_owned(), 0);
            match way.zero_copy {
                _ if !fail.contains(&name(way).as_str()) => Ok(()),
                true => {
                    let source = io::Error::from_raw_os_error(libc::EOPNOTSUPP);
                    Err(AfXdpError::NoZeroCopy { interface, queue, source })
                }
                false => {
                    let source = io::Error::from_raw_os_error(libc::EINVAL);
                    Err(AfXdpError::NoQueue { interface, queue, source })
                }
            }
        });
        let text = |why: Option<Refusal>| why.map(|why| why.to_string()).unwrap_or_default();
        (found.map(|found| found.map(|(way, why)| (name(way), text(why)))), tried)
    }

    /// The way and the reason, where there is a way.
    fn way(device: &Device, ran: &Ran<'_>, wanted: ModeName, fail: &[&str]) -> (String, String) {
        chosen(device, ran, wanted, fail).0.expect("no error").expect("a way")
    }

    #[test]
    fn zero_copy_comes_first_and_copy_is_certain() {
        let ice = device("ice", 1500);
        let (found, tried) = chosen(&ice, &NATIVE, ModeName::Auto, &[]);
        assert_eq!(found.unwrap(), Some(("zero-copy".to_owned(), String::new())));
        assert_eq!(tried, ["zero-copy"]);
        let (found, tried) = chosen(&ice, &NATIVE, ModeName::Auto, &["zero-copy"]);
        let (mode, why) = found.unwrap().unwrap();
        assert_eq!((mode.as_str(), tried.len()), ("copy", 1));
        assert!(why.starts_with("ice refuses zero-copy: "), "{why}");
        let (found, tried) = chosen(&ice, &NATIVE, ModeName::Copy, &["zero-copy"]);
        assert_eq!(found.unwrap(), Some(("copy".to_owned(), String::new())));
        assert!(tried.is_empty(), "{tried:?}");
        let found = chosen(&ice, &NATIVE, ModeName::ZeroCopy, &["zero-copy"]).0;
        let error = found.expect_err("it is demanded").to_string();
        assert!(error.starts_with("cannot bind 'eth0' in zero-copy mode: found ice"), "{error}");
    }

    #[test]
    fn jumbo_frames_that_fit_a_chunk_need_no_multi_buffer_for_zero_copy() {
        let ice = device("ice", 3600);
        let found = way(&ice, &MULTI_BUFFER, ModeName::Auto, &[]);
        assert_eq!(found, ("zero-copy".to_owned(), String::new()));
        let found = way(&ice, &MULTI_BUFFER, ModeName::Auto, &["zero-copy"]);
        assert_eq!(found, ("zero-copy several".to_owned(), String::new()));
    }

    #[test]
    fn all_frames_by_copy_are_better_than_some_by_zero_copy() {
        let mlx5 = device("mlx5_core", 9000);
        let found = way(&mlx5, &MULTI_BUFFER, ModeName::Auto, &[]);
        assert_eq!(found, ("zero-copy several".to_owned(), String::new()));
        let (found, tried) = chosen(&mlx5, &MULTI_BUFFER, ModeName::Auto, &["zero-copy several"]);
        let (mode, why) = found.unwrap().unwrap();
        assert_eq!((mode.as_str(), tried.len()), ("copy several", 2));
        assert!(why.ends_with("bytes; use an MTU of 3686 for zero-copy"), "{why}");
        assert!(why.starts_with("mlx5_core refuses zero-copy") && !why.contains("are dropped"));
        // What the kernel declares is not tried.
        let most = Some(1);
        let xdp =
            XdpFeatures { zero_copy: true, zero_copy_multi_buffer: most, ..Default::default() };
        let mlx5 = Device { xdp: Some(xdp), ..mlx5 };
        let (found, tried) = chosen(&mlx5, &MULTI_BUFFER, ModeName::Auto, &[]);
        let why =
            "zero-copy drops packets of more than 3686 bytes; use an MTU of 3686 for zero-copy";
        assert_eq!(found.unwrap(), Some(("copy several".to_owned(), why.to_owned())));
        assert_eq!(tried, ["copy several"]);
    }

    #[test]
    fn a_demanded_zero_copy_says_what_it_drops() {
        let mlx5 = device("mlx5_core", 9000);
        let fail = ["zero-copy several"];
        let (mode, why) = way(&mlx5, &MULTI_BUFFER, ModeName::ZeroCopy, &fail);
        assert_eq!(mode, "zero-copy");
        let dropped = "packets of more than 3686 bytes are dropped: mlx5_core refuses zero-copy";
        assert!(
            why.starts_with(dropped)
                && why.ends_with("use an MTU of 3686, or another network.mode"),
            "{why}"
        );
    }

    #[test]
    fn a_driver_of_whole_kib_gets_zero_copy_only_for_what_it_receives() {
        let other = device("unheard-of", 3100);
        let (found, tried) = chosen(&other, &NATIVE, ModeName::Auto, &[]);
        let why =
            "zero-copy drops packets of more than 3046 bytes; use an MTU of 3046 for zero-copy";
        assert_eq!(found.unwrap(), Some(("copy".to_owned(), why.to_owned())));
        assert!(tried.is_empty(), "{tried:?}");
        let (mode, why) = way(&other, &NATIVE, ModeName::ZeroCopy, &[]);
        assert_eq!(mode, "zero-copy");
        assert!(
            why.starts_with("packets of more than 3046 bytes are dropped: unheard-of"),
            "{why}"
        );
        let found = way(&device("unheard-of", 3046), &NATIVE, ModeName::Auto, &[]);
        assert_eq!(found, ("zero-copy".to_owned(), String::new()));
        // There is none to be had.
        let other = Device { xdp: Some(XdpFeatures::default()), ..other };
        let found = way(&other, &NATIVE, ModeName::Auto, &[]);
        assert_eq!(found, ("copy".to_owned(), String::new()));
    }

    #[test]
    fn a_driver_that_took_a_multi_buffer_program_gets_such_a_socket() {
        let i40e = device("i40e", 3100);
        let found = way(&i40e, &MULTI_BUFFER, ModeName::Auto, &[]);
        assert_eq!(found, ("zero-copy".to_owned(), String::new()));
        let none = ["zero-copy", "zero-copy several"];
        let (mode, why) = way(&i40e, &MULTI_BUFFER, ModeName::Auto, &none);
        assert_eq!(mode, "copy several");
        assert!(why.starts_with("i40e refuses zero-copy") && !why.contains("dropped"), "{why}");
        // Without, larger frames than the driver's buffer would be lost: generic XDP receives them.
        let none = ["zero-copy", "zero-copy several", "copy several"];
        assert!(chosen(&i40e, &MULTI_BUFFER, ModeName::Auto, &none).0.unwrap().is_none());
        assert!(chosen(&i40e, &MULTI_BUFFER, ModeName::Copy, &none).0.unwrap().is_none());
    }

    #[test]
    fn jumbo_frames_that_nothing_receives_are_announced_as_dropped() {
        let (mode, why) = way(&device("veth", 9000), &NATIVE, ModeName::Copy, &[]);
        assert_eq!(mode, "copy");
        assert!(
            why.starts_with("packets of more than 3502 bytes are dropped: the kernel"),
            "{why}"
        );
        assert!(why.ends_with("(Linux 5.18); use an MTU of 3502"), "{why}");
        // A buffer of i40e holds less than one of veth.
        for (driver, largest) in [("veth", "3502"), ("i40e", "3046")] {
            let fail = ["copy several"];
            let (mode, why) = way(&device(driver, 9000), &MULTI_BUFFER, ModeName::Copy, &fail);
            let dropped =
                format!("packets of more than {largest} bytes are dropped: the kernel's AF_XDP");
            assert!(mode == "copy" && why.starts_with(&dropped), "{why}");
        }
    }

    #[test]
    fn generic_xdp_says_why_the_driver_does_not_run_the_program() {
        let refused = XdpProgramError::Attach {
            interface: "eth0".into(),
            mode: AttachMode::Native,
            reason: "no".into(),
            errno: Some(libc::EINVAL),
        };
        let ran = Ran { mode: AttachMode::Generic, refused: Some(&refused), ..NATIVE };
        let (mode, why) = way(&device("igb", 3400), &ran, ModeName::Auto, &[]);
        assert_eq!(mode, "copy");
        assert!(why.starts_with("igb refuses native XDP: no; igb: native XDP asks for"), "{why}");
        let (mode, why) = way(&device("igb", 3400), &NATIVE, ModeName::Generic, &[]);
        assert_eq!((mode.as_str(), why.as_str()), ("copy", ""));
    }
}
