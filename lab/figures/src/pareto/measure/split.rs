//! Which processors are the service's, and which the load generator's: never the same.

use std::collections::BTreeSet;

use anyhow::bail;
use control::sysfs::show_cpus;
use control::{Configuration, Topology};

/// See the module's comment.
#[derive(Clone, Debug)]
pub struct Split {
    /// The service's.
    pub service: Topology,
    /// The load generator's.
    pub client: Topology,
}

impl Split {
    /// The load generator's processors as they were asked for; where they were not, the last half of the cores, or
    /// of the processors where there is one core. It has as many threads as the service.
    ///
    /// # Errors
    /// Fewer than two processors; a processor that there is not; none left for the service.
    pub fn of(topology: &Topology, client: Option<&[u32]>) -> anyhow::Result<Self> {
        let all = topology.allocation_order();
        if all.len() < 2 {
            bail!(
                "this machine gives us {} processor(s) ({}); measuring needs two, as the load generator takes one: \
                 simulate (`tailplane pareto --machine this`), or allow more",
                all.len(),
                show_cpus(&all)
            );
        }
        let client = match client {
            Some(asked) => {
                let unknown: Vec<u32> =
                    asked.iter().copied().filter(|cpu| !all.contains(cpu)).collect();
                if asked.is_empty() || !unknown.is_empty() {
                    let named = match asked {
                        [] => "no processor".to_owned(),
                        _ => show_cpus(&unknown),
                    };
                    bail!("`--client-cpus` names {named}; allowed: some of {}", show_cpus(&all));
                }
                asked.to_vec()
            }
            None => last_half(topology),
        };
        let service: Vec<u32> = all.into_iter().filter(|cpu| !client.contains(cpu)).collect();
        if service.is_empty() {
            bail!("`--client-cpus` names all processors; leave at least one to the service");
        }
        Ok(Self {
            service: topology.restricted_to(&service),
            client: topology.restricted_to(&client),
        })
    }

    /// The processors of a configuration's elastic threads, cores first (IX §5.4).
    pub fn cpus(&self, configuration: &Configuration) -> Vec<u32> {
        let places = self.service.places().into_iter().zip(self.service.allocation_order());
        let granted = places.filter(|(place, _)| {
            place.core < configuration.cores && (place.sibling == 0 || configuration.hyperthreads)
        });
        granted.map(|(_, cpu)| cpu).collect()
    }

    /// The sockets that the service's processors are on.
    pub fn sockets(&self) -> Vec<u32> {
        let sockets: BTreeSet<u32> = self.service.cpus.iter().map(|cpu| cpu.package).collect();
        sockets.into_iter().collect()
    }

    /// The load generator's processors as the kernel would write them.
    pub fn client_list(&self) -> String {
        show_cpus(&self.client.allocation_order())
    }
}

/// Whole cores, so that service and load generator share none.
fn last_half(topology: &Topology) -> Vec<u32> {
    let (order, places) = (topology.allocation_order(), topology.places());
    let cores = topology.machine().cores;
    if cores < 2 {
        return order[order.len() / 2..].to_vec();
    }
    let first = cores / 2;
    let both = order.into_iter().zip(places);
    both.filter(|(_, place)| place.core >= first).map(|(cpu, _)| cpu).collect()
}

#[cfg(test)]
mod tests {
    use control::{Clock, Cpu};

    use super::*;

    /// Cores of so many threads, numbered as Linux does.
    fn machine(cores: u32, threads: u32) -> Topology {
        let cpu = |id: u32| Cpu { id, package: 0, core: id % cores, sibling: id / cores };
        let cpus = (0..cores * threads).map(cpu).collect();
        Topology { cpus, domains: Vec::new(), boost: None }
    }

    fn of(cores: u32, hyperthreads: bool) -> Configuration {
        Configuration { cores, hyperthreads, clock: Clock::Fixed }
    }

    #[test]
    fn the_load_generator_has_cores_of_its_own() {
        let split = Split::of(&machine(4, 2), None).expect("eight processors");
        assert_eq!(split.client_list(), "2-3,6-7");
        assert_eq!(split.cpus(&of(1, false)), [0]);
        assert_eq!(split.cpus(&of(2, false)), [0, 1]);
        assert_eq!(split.cpus(&of(1, true)), [0, 4]);
        assert_eq!(split.cpus(&of(2, true)), [0, 1, 4, 5]);
        let two = Split::of(&machine(2, 1), None).expect("two processors");
        assert_eq!((two.cpus(&of(2, false)), two.client_list()), (vec![0], "1".to_owned()));
        let three = Split::of(&machine(3, 1), None).expect("three processors");
        assert_eq!(three.client_list(), "1-2");
        let siblings = Split::of(&machine(1, 2), None).expect("two processors of a core");
        assert_eq!((siblings.sockets(), siblings.client_list()), (vec![0], "1".to_owned()));
    }

    #[test]
    fn what_is_asked_for_is_checked() {
        let error = |topology: &Topology, client: &[u32]| {
            Split::of(topology, Some(client)).expect_err("wrong").to_string()
        };
        let four = machine(4, 1);
        assert_eq!(error(&four, &[3, 9]), "`--client-cpus` names 9; allowed: some of 0-3");
        assert!(error(&four, &[]).contains("names no processor"));
        assert!(error(&four, &[0, 1, 2, 3]).contains("leave at least one"));
        assert!(error(&machine(1, 1), &[0]).contains("measuring needs two"));
        let split = Split::of(&four, Some(&[0])).expect("three are left");
        assert_eq!(split.cpus(&of(3, false)), [1, 2, 3]);
    }
}
