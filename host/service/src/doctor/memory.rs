//! Huge pages and memory.

use super::check::Check;
use super::root::Root;

/// 2 MiB pages that a dataplane of two queues wants: UMEM, pools, connection tables.
const PAGES_WANTED: i64 = 64;

/// The checks.
pub fn checks(root: &Root) -> Vec<Check> {
    vec![huge_pages(root), gigantic_pages(root), numa(root), available(root)]
}

/// All huge pages of a size, and those that are free.
fn pages(root: &Root, size: &str) -> Option<(i64, i64)> {
    let read = |what: &str| {
        root.number(format!("sys/kernel/mm/hugepages/hugepages-{size}/{what}_hugepages"))
    };
    Some((read("nr")?, read("free")?))
}

fn huge_pages(root: &Root) -> Check {
    let name = "2 MiB pages";
    let cost = "buffers lie in 4 KiB pages: more TLB misses on large working sets, slower start";
    let Some((total, free)) = pages(root, "2048kB") else {
        return Check::ok(name, "not supported by this kernel")
            .warn(cost, "boot a kernel with CONFIG_HUGETLBFS");
    };
    let wanted = total + PAGES_WANTED - free;
    let remedy = format!("echo {wanted} > /proc/sys/vm/nr_hugepages (put {total} back after)");
    let check = Check::ok(name, format!("{free} free of {total}"));
    check.fine_if(free >= PAGES_WANTED).or_warn(cost, remedy)
}

/// Supported is enough: nothing needs them, large tables may use them.
fn gigantic_pages(root: &Root) -> Check {
    let found = match pages(root, "1048576kB") {
        Some((total, free)) => format!("supported, {free} free of {total}"),
        None => "not supported (nothing needs them)".to_owned(),
    };
    Check::ok("1 GiB pages", found)
}

fn numa(root: &Root) -> Check {
    let nodes = root.read("sys/devices/system/node/online").unwrap_or_else(|| "0".to_owned());
    Check::ok("NUMA nodes", &nodes).fine_if(nodes == "0").or_warn(
        "memory and NIC queues of another node are slower to reach than the own ones",
        "keep the cores of a dataplane on the node of its NIC",
    )
}

fn available(root: &Root) -> Check {
    let field = |key| {
        let text = root.field("proc/meminfo", key)?;
        text.split_whitespace().next()?.parse::<u64>().ok()
    };
    let mib = |key| field(key).map_or("?".to_owned(), |kib| (kib / 1024).to_string());
    Check::ok("memory", format!("{} MiB available of {}", mib("MemAvailable"), mib("MemTotal")))
}

#[cfg(test)]
mod tests {
    use super::super::check::Status;
    use super::super::fake_tests::FakeRoot;
    use super::*;

    const NR: &str = "sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages";
    const FREE: &str = "sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages";

    #[test]
    fn the_remedy_adds_to_the_pages_in_use_and_names_the_old_value() {
        let check = huge_pages(&FakeRoot::with(&[(NR, "10"), (FREE, "4")]).root());
        assert_eq!(check.status, Status::Warn);
        // Six are in use and stay so; 64 more are wanted free.
        assert!(check.remedy.contains("echo 70 "), "{check:?}");
        assert!(check.remedy.contains("put 10 back"), "{check:?}");
    }

    #[test]
    fn enough_free_pages_are_fine() {
        let check = huge_pages(&FakeRoot::with(&[(NR, "64"), (FREE, "64")]).root());
        assert_eq!((check.status, check.found.as_str()), (Status::Ok, "64 free of 64"));
    }

    #[test]
    fn a_second_node_is_a_warning() {
        let with = |nodes| {
            numa(&FakeRoot::with(&[("sys/devices/system/node/online", nodes)]).root()).status
        };
        assert_eq!((with("0"), with("0-1")), (Status::Ok, Status::Warn));
    }
}
