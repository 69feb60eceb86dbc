//! The paper's service on another machine, or with another objective: each core serves and draws what the paper's
//! does, at its own clock.
//!
//! ```
//! use control::Machine;
//! use world::controlled::server::ServerModel;
//! let machine = Machine { cores: 4, ..Machine::ix() };
//! let model = ServerModel::on_machine("half of it", &machine, 1);
//! let (half, whole) = (model.capacity_rps(&machine.maximum()), ServerModel::ix());
//! assert!((half / whole.capacity_rps(&Machine::ix().maximum()) - 0.5).abs() < 1e-9);
//! ```

use super::error::ModelError;
use super::model::ServerModel;
use control::Machine;

impl ServerModel {
    /// A model for the dimensions of a machine with so many sockets. A core at the paper's nominal clock serves
    /// and draws what the paper's does; other clocks in proportion, and clocks that cannot be set are reckoned as
    /// the paper's nominal one. Each socket draws its static power.
    pub fn on_machine(name: &str, machine: &Machine, sockets: u32) -> Self {
        let ix = Self::ix();
        let nominal = ix.machine().nominal_clock();
        let mut model = Self {
            name: name.to_owned(),
            cores: machine.cores,
            threads_per_core: machine.threads_per_core,
            clocks_khz: machine.clocks_khz.clone(),
            turbo: machine.turbo,
            ..ix.clone()
        };
        model.power.static_watts *= f64::from(sockets.max(1));
        if machine.clocks_khz.is_empty() {
            // A clock that is not known is reckoned as 1 GHz (`ServerModel::ghz`).
            model.power.core_watts_per_ghz_v2 *= ix.ghz(nominal);
        }
        let faster = match machine.clocks_khz.is_empty() {
            true => 1.0,
            false => model.ghz(machine.nominal_clock()) / ix.ghz(nominal),
        };
        model.throughput_at_slo_rps = model.throughput_rps(ix.unit_rps() * faster);
        model
    }

    /// The same service with another objective for its 99th percentile, in microseconds: cores serve what they
    /// did, and need more headroom or less ([`headroom_rps`](Self::headroom_rps)).
    ///
    /// # Errors
    /// An objective that is out of range, or that it keeps at no load.
    pub fn with_slo_us(self, slo_us: f64) -> Result<Self, ModelError> {
        let unit_rps = self.unit_rps();
        let mut model = Self { slo_us, ..self };
        model.validate()?;
        model.throughput_at_slo_rps = model.throughput_rps(unit_rps);
        if model.throughput_at_slo_rps < 1.0 {
            let allowed = "more: at this the service keeps it at no load";
            return Err(ModelError::Range { what: "slo_us", found: slo_us, allowed });
        }
        model.validate()?;
        Ok(model)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use control::Configuration;

    #[test]
    fn on_the_papers_machine_it_is_the_papers_model() {
        let ix = ServerModel::ix();
        let again = ServerModel::on_machine(&ix.name, &Machine::ix(), 1);
        assert!((again.throughput_at_slo_rps / ix.throughput_at_slo_rps - 1.0).abs() < 1e-12);
        let (machine, most) = (ix.machine(), ix.machine().maximum());
        assert_eq!(again.machine(), machine);
        assert_eq!(again.watts(&most, 1e6, 0.0), ix.watts(&most, 1e6, 0.0));
    }

    #[test]
    fn a_machine_without_clocks_serves_and_draws_what_the_papers_nominal_clock_does() {
        let ix = ServerModel::ix();
        let fixed = Machine { clocks_khz: Vec::new(), turbo: false, ..Machine::ix() };
        let model = ServerModel::on_machine("fixed", &fixed, 2);
        model.validate().expect("a machine that there can be");
        let nominal =
            Configuration { clock: Machine::ix().nominal_clock(), ..Machine::ix().maximum() };
        let rps = ix.capacity_rps(&nominal);
        assert!((model.capacity_rps(&fixed.maximum()) / rps - 1.0).abs() < 1e-12);
        let more = model.watts(&fixed.maximum(), rps, 0.0) - ix.watts(&nominal, rps, 0.0);
        assert!((more - ix.power.static_watts).abs() < 1e-9, "a second socket: {more} W");
    }

    #[test]
    fn a_tighter_objective_leaves_less() {
        let most = Machine::ix().maximum();
        let capacity =
            |us| ServerModel::ix().with_slo_us(us).expect("in range").capacity_rps(&most);
        assert!((capacity(500.0) / ServerModel::ix().capacity_rps(&most) - 1.0).abs() < 1e-12);
        assert!(capacity(200.0) < capacity(500.0) && capacity(500.0) < capacity(2_000.0));
        let error = |us| ServerModel::ix().with_slo_us(us).unwrap_err().to_string();
        assert!(error(20.0).contains("slo_us - 1"), "{}", error(20.0));
        assert!(error(35.0).contains("keeps it at no load"), "{}", error(35.0));
        assert!(error(f64::NAN).contains("slo_us is NaN"));
    }
}
