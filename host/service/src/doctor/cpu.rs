//! Processors: how many, which of them to oneself, how they wait, what lies underneath.

use control::sysfs::parse_cpus;

use super::check::Check;
use super::root::Root;

const CPUS: &str = "sys/devices/system/cpu";
/// A dataplane core, and one for everything else.
const CORES_WANTED: usize = 2;

/// The signature of the hypervisor (CPUID leaf 0x4000_0000), where the processor says there is one.
pub fn probe_hypervisor() -> Option<String> {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::__cpuid;
        /// Leaf 1, ECX: "a hypervisor is present".
        const HYPERVISOR_BIT: u32 = 1 << 31;
        if __cpuid(1).ecx & HYPERVISOR_BIT == 0 {
            return None;
        }
        let leaf = __cpuid(0x4000_0000);
        let bytes: Vec<u8> =
            [leaf.ebx, leaf.ecx, leaf.edx].iter().flat_map(|word| word.to_le_bytes()).collect();
        let signature = String::from_utf8_lossy(&bytes);
        let printable: String =
            signature.chars().filter(|character| character.is_ascii_graphic()).collect();
        Some(if printable.is_empty() { "unnamed".to_owned() } else { printable })
    }
    #[cfg(not(target_arch = "x86_64"))]
    None
}

/// The checks, given what [`probe_hypervisor`] found.
pub fn checks(root: &Root, hypervisor: Option<String>) -> Vec<Check> {
    let model = root.field("proc/cpuinfo", "model name");
    vec![
        Check::ok("processor", model.unwrap_or_else(|| "unknown".to_owned())),
        cores(root),
        siblings(root),
        isolation(root),
        waiting(root),
        virtualisation(root, hypervisor),
    ]
}

/// How many processors a list such as `0-3,8` names; malformed parts count nothing.
fn count(list: &str) -> usize {
    list.split(',').filter_map(parse_cpus).map(|cpus| cpus.len()).sum()
}

fn cores(root: &Root) -> Check {
    let online = root.read(format!("{CPUS}/online")).unwrap_or_default();
    let allowed = root.field("proc/self/status", "Cpus_allowed_list").unwrap_or_default();
    let usable = count(&allowed);
    let found = format!("{usable} usable ({allowed}) of {} online", count(&online));
    Check::ok("cores", found).fine_if(usable >= CORES_WANTED).or_warn(
        "dataplane, application and client share one core: latency is that of the kernel's \
         scheduler",
        format!("give it {CORES_WANTED} cores or more, or widen the cpuset"),
    )
}

fn siblings(root: &Root) -> Check {
    let active = root.number(format!("{CPUS}/smt/active"));
    let found = active.map_or("unknown", |active| if active == 1 { "on" } else { "off" });
    Check::ok("hyperthreads", found).fine_if(active != Some(1)).or_warn(
        "a busy sibling takes a good part of the core's speed, and shows in the tail",
        "use one thread of each core for dataplanes, or boot with nosmt",
    )
}

fn isolation(root: &Root) -> Check {
    let isolated = root.read(format!("{CPUS}/isolated")).unwrap_or_default();
    let tickless = root.read(format!("{CPUS}/nohz_full")).unwrap_or_default();
    // The kernel prints "(null)" for an empty mask.
    let tickless = if tickless == "(null)" { String::new() } else { tickless };
    let shown = |list: &str| if list.is_empty() { "none".to_owned() } else { list.to_owned() };
    let found = format!("isolated: {}, tickless: {}", shown(&isolated), shown(&tickless));
    let is_fine = !isolated.is_empty() && !tickless.is_empty();
    Check::ok("isolated cores", found).fine_if(is_fine).or_warn(
        "the kernel's tick and other threads interrupt the dataplane: it shows at p99.9",
        "boot with isolcpus=LIST nohz_full=LIST rcu_nocbs=LIST, or use a cpuset partition",
    )
}

fn waiting(root: &Root) -> Check {
    let flags = [("waitpkg", "UMWAIT"), ("mwaitx", "MWAITX")];
    let found: Vec<&str> =
        flags.iter().filter(|(flag, _)| root.has_cpu_flag(flag)).map(|(_, name)| *name).collect();
    let (is_fine, found) = (!found.is_empty(), found.join(", "));
    Check::of("user-level wait").either(is_fine, &found, "no UMWAIT, no MWAITX").or_warn(
        "an idle core spins at full power, or sleeps in the kernel and wakes 10 us or more \
         later",
        "nothing here: the budget of the spin bounds the cost (newer processors have it)",
    )
}

fn virtualisation(root: &Root, hypervisor: Option<String>) -> Check {
    let hypervisor =
        hypervisor.or_else(|| root.has_cpu_flag("hypervisor").then(|| "unnamed".into()));
    let name = hypervisor.as_deref().unwrap_or("none");
    Check::ok("hypervisor", name).fine_if(hypervisor.is_none()).or_warn(
        "idle virtual processors halt and wake late (a blocking round trip takes 55 us instead \
         of 7), neighbours steal time, interrupts between processors cost several us",
        "spin rather than block while measuring; judge tails on bare metal",
    )
}

#[cfg(test)]
mod tests {
    use super::super::check::Status;
    use super::super::fake_tests::FakeRoot;
    use super::*;

    #[test]
    fn processor_lists_are_counted() {
        for (list, expected) in [("0", 1), ("0-3,8", 5), ("", 0), ("3-1", 0), ("0-x,7", 1)] {
            assert_eq!(count(list), expected, "{list}");
        }
    }

    #[test]
    fn one_usable_core_is_a_warning_however_many_are_online() {
        let fake = FakeRoot::with(&[
            ("sys/devices/system/cpu/online", "0-15"),
            ("proc/self/status", "Cpus_allowed_list:\t3\n"),
        ]);
        let check = cores(&fake.root());
        assert_eq!(check.status, Status::Warn);
        assert_eq!(check.found, "1 usable (3) of 16 online");
    }

    #[test]
    fn isolation_needs_both_lists() {
        let with = |tickless| {
            let files = [
                ("sys/devices/system/cpu/isolated", "2-3"),
                ("sys/devices/system/cpu/nohz_full", tickless),
            ];
            isolation(&FakeRoot::with(&files).root()).status
        };
        assert_eq!(with("(null)"), Status::Warn);
        assert_eq!(with("2-3"), Status::Ok);
    }

    #[test]
    fn waiting_instructions_are_read_from_the_flags() {
        let with = |flags| waiting(&FakeRoot::with(&[("proc/cpuinfo", flags)]).root());
        assert_eq!(with("flags : fpu waitpkg mwaitx").found, "UMWAIT, MWAITX");
        assert_eq!(with("flags : fpu").status, Status::Warn);
    }

    #[test]
    fn a_hypervisor_is_seen_by_signature_or_by_flag() {
        let bare = FakeRoot::with(&[("proc/cpuinfo", "flags : fpu")]);
        let guest = FakeRoot::with(&[("proc/cpuinfo", "flags : fpu hypervisor")]);
        assert_eq!(virtualisation(&bare.root(), None).status, Status::Ok);
        assert_eq!(virtualisation(&guest.root(), None).status, Status::Warn);
        assert_eq!(virtualisation(&bare.root(), Some("KVMKVMKVM".into())).found, "KVMKVMKVM");
    }
}
