//! Which machine is simulated: the paper's, this one, or one that a file describes.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::Context;
use control::Topology;
use world::controlled::server::ServerModel;

/// A machine to simulate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Which {
    /// IX's server (§5.1).
    Ix,
    /// The dimensions of the machine that we run on.
    This,
    /// All parameters from a file.
    File(PathBuf),
}

impl From<&str> for Which {
    fn from(word: &str) -> Self {
        match word {
            "ix" => Self::Ix,
            "this" => Self::This,
            path => Self::File(path.into()),
        }
    }
}

/// What holds of this machine when it is simulated.
pub const THIS_NOTE: &str = "cores, hyperthreads and clocks are this machine's; what a core serves and draws at a \
                             clock is the paper's (host/control/src/server/ix.toml), not measured here: \
                             `--measure` measures, `--save-machine` writes a file to put in numbers of your own";
/// The same of the other machines.
pub const IX_NOTE: &str = "the server is a queueing model with the paper's figures; power, Turbo's gain and what \
                           clocks and threads take to change are fitted or assumed, as \
                           host/control/src/server/ix.toml says of each";

impl Which {
    /// Its model, and what a reader should know of it. `sys` is where sysfs shows this machine.
    ///
    /// # Errors
    /// The file cannot be read or describes no machine; sysfs does not show this one.
    pub fn model(&self, sys: &Path) -> anyhow::Result<(ServerModel, Vec<String>)> {
        match self {
            Self::Ix => Ok((ServerModel::ix(), vec![IX_NOTE.to_owned()])),
            Self::This => this(sys),
            Self::File(path) => Ok((from_file(path)?, Vec::new())),
        }
    }
}

fn this(sys: &Path) -> anyhow::Result<(ServerModel, Vec<String>)> {
    let topology = Topology::read(sys)
        .context("cannot see this machine's processors; `--machine FILE` describes one by hand")?;
    let sockets: BTreeSet<u32> = topology.cpus.iter().map(|cpu| cpu.package).collect();
    let machine = topology.machine();
    let model = ServerModel::on_machine("this machine", &machine, sockets.len() as u32);
    model.validate().context("this machine cannot be simulated")?;
    let mut notes = vec![THIS_NOTE.to_owned()];
    if machine.clocks_khz.is_empty() {
        let at = sys.join("devices/system/cpu/cpufreq");
        notes.push(format!(
            "no clock can be set here (nothing for all processors in '{}'): configurations differ in cores and \
             hyperthreads alone",
            at.display()
        ));
    }
    Ok((model, notes))
}

fn from_file(path: &Path) -> anyhow::Result<ServerModel> {
    let shown = path.display();
    let text = std::fs::read_to_string(path).with_context(|| {
        format!("cannot read '{shown}' as a machine; `--machine` takes 'ix', 'this' or a TOML file")
    })?;
    ServerModel::from_toml(&text).with_context(|| {
        format!(
            "'{shown}' describes no machine; `tailplane pareto --save-machine FILE` writes one to begin with, \
             and docs/pareto.md says what each key means"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(name: &str) -> PathBuf {
        let place =
            std::env::temp_dir().join(format!("tailplane-pareto-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&place).expect("a directory for this test");
        place
    }

    #[test]
    fn words_name_machines_and_all_else_is_a_file() {
        assert_eq!((Which::from("ix"), Which::from("this")), (Which::Ix, Which::This));
        assert_eq!(Which::from("./ix"), Which::File("./ix".into()));
    }

    #[test]
    fn what_is_saved_can_be_read_and_what_is_wrong_is_said() {
        let place = place("file");
        let file = place.join("machine.toml");
        std::fs::write(&file, ServerModel::ix().to_toml()).expect("written");
        let which = Which::File(file.clone());
        assert_eq!(which.model(Path::new("none")).expect("read").0, ServerModel::ix());
        let error = |which: &Which| format!("{:#}", which.model(&place).expect_err("wrong"));
        let text = ServerModel::ix().to_toml().replace("static_watts", "static_wats");
        std::fs::write(&file, text).expect("written");
        let said = error(&which);
        assert!(said.contains("--save-machine") && said.contains("static_wats"), "{said}");
        let said = error(&Which::File(place.join("none")));
        assert!(said.contains("'ix', 'this' or a TOML file"), "{said}");
        let said = error(&Which::This);
        assert!(said.contains("cpu/online is not there"), "{said}");
        std::fs::remove_dir_all(&place).expect("it was there");
    }
}
