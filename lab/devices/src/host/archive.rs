//! Debian's archive through apt, in a state of its own: its own sources, lists and cache. The machine's are read alone.
//!
//! ```text
//! let archive = Archive::open(&paths, "trixie", &["trixie"], Installed::Nothing)?;
//! archive.download(&["linux-image-6.12.0-amd64"], &directory)?;
//! ```

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, bail};

use super::paths::Paths;

/// Where the machine's own sources name no mirror.
const DEFAULT_MIRROR: &str = "http://deb.debian.org/debian";
/// What signs Debian's archive, where the machine's own sources say nothing else.
const DEFAULT_KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";
/// Where apt's own sources lie.
const APT_DIRECTORY: &str = "/etc/apt";
/// Longest time for one call of apt, in seconds.
const APT_LIMIT_S: u32 = 900;

/// Which packages apt takes for installed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Installed {
    /// Those of this machine.
    TheMachines,
    /// None.
    Nothing,
}

/// A mirror and what signs it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mirror {
    uri: String,
    keyring: String,
}

impl Mirror {
    /// The mirror that this machine uses.
    pub fn of_this_machine() -> Self {
        let directory = Path::new(APT_DIRECTORY);
        let mut files = vec![directory.join("sources.list")];
        let more = fs::read_dir(directory.join("sources.list.d")).into_iter().flatten().flatten();
        files.extend(more.map(|entry| entry.path()));
        let texts = files.iter().filter_map(|file| fs::read_to_string(file).ok());
        let found = texts.filter_map(|text| Self::named_in(&text)).next();
        found.unwrap_or_else(|| Self {
            uri: DEFAULT_MIRROR.to_owned(),
            keyring: DEFAULT_KEYRING.to_owned(),
        })
    }

    /// The first mirror of Debian's main archive in a sources file of either format.
    fn named_in(text: &str) -> Option<Self> {
        let is_archive = |word: &&str| {
            let path = word.trim_end_matches('/');
            word.contains("://") && path.ends_with("/debian")
        };
        let lines = || text.lines().filter(|line| !line.trim_start().starts_with('#'));
        let uri = lines().flat_map(str::split_whitespace).find(is_archive)?;
        let deb822 = lines().find_map(|line| line.strip_prefix("Signed-By:"));
        let one_line = || {
            let words = lines().flat_map(|line| line.split(['[', ']', ' ']));
            words.filter_map(|word| word.strip_prefix("signed-by=")).next()
        };
        let keyring = deb822.map(str::trim).or_else(one_line).filter(|file| file.starts_with('/'));
        Some(Self { uri: uri.to_owned(), keyring: keyring.unwrap_or(DEFAULT_KEYRING).to_owned() })
    }
}

/// apt with a state of its own.
#[derive(Debug)]
pub struct Archive {
    state: PathBuf,
    status: PathBuf,
}

impl Archive {
    /// Makes the state `name` with these suites, and has apt read their lists.
    ///
    /// # Errors
    /// The state cannot be written; apt cannot read the lists.
    pub fn open(
        paths: &Paths,
        name: &str,
        suites: &[&str],
        installed: Installed,
    ) -> anyhow::Result<Self> {
        let state = paths.apt.join(name);
        for directory in ["lists/partial", "cache/archives/partial", "state"] {
            fs::create_dir_all(state.join(directory)).context("making apt's private state")?;
        }
        let mirror = Mirror::of_this_machine();
        let line =
            |suite| format!("deb [signed-by={}] {} {suite} main\n", mirror.keyring, mirror.uri);
        let sources: String = suites.iter().map(line).collect();
        fs::write(state.join("sources.list"), sources).context("writing apt's private sources")?;
        let empty = state.join("state/status");
        fs::write(&empty, "").context("writing apt's private state")?;
        let status = match installed {
            Installed::TheMachines => PathBuf::from("/var/lib/dpkg/status"),
            Installed::Nothing => empty,
        };
        let archive = Self { state, status };
        archive.run(archive.apt("apt-get").arg("update"))?;
        Ok(archive)
    }

    /// A program of apt's, in this state.
    fn apt(&self, program: &str) -> Command {
        let mut command = Command::new("timeout");
        command.arg(APT_LIMIT_S.to_string()).arg(program).env("LC_ALL", "C").stdin(Stdio::null());
        let state = self.state.display();
        let options = [
            format!("Dir::Etc::SourceList={state}/sources.list"),
            "Dir::Etc::SourceParts=/dev/null".to_owned(),
            "Dir::Etc::Preferences=/dev/null".to_owned(),
            "Dir::Etc::PreferencesParts=/dev/null".to_owned(),
            format!("Dir::State={state}/state"),
            format!("Dir::State::Lists={state}/lists"),
            format!("Dir::State::Status={}", self.status.display()),
            format!("Dir::Cache={state}/cache"),
            "Acquire::Languages=none".to_owned(),
            "Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false".to_owned(),
            "Acquire::IndexTargets::deb::Contents-deb::DefaultEnabled=false".to_owned(),
            "Acquire::Retries=2".to_owned(),
            "Acquire::http::Timeout=30".to_owned(),
            // The user `_apt` cannot write below another user's directory.
            "APT::Sandbox::User=root".to_owned(),
            // Nothing is installed here: there is no need to wait for who installs.
            "Debug::NoLocking=true".to_owned(),
        ];
        for option in options {
            command.arg("-o").arg(option);
        }
        command
    }

    /// Runs a command whose output is its progress, for people.
    fn run(&self, command: &mut Command) -> anyhow::Result<()> {
        command.stdout(std::io::stderr());
        let status = command.status().context("cannot start apt-get: is apt installed?")?;
        if !status.success() {
            bail!("cannot fetch from Debian's archive: apt ended with {status}; see above");
        }
        Ok(())
    }

    fn output(&self, command: &mut Command) -> anyhow::Result<String> {
        let output = command.output().context("cannot start apt: is it installed?")?;
        if !output.status.success() {
            bail!("apt ended with {}: {}", output.status, String::from_utf8_lossy(&output.stderr));
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// The names of the packages that `package` depends on, and its version.
    ///
    /// # Errors
    /// The archive has no such package.
    pub fn look(&self, package: &str) -> anyhow::Result<Found> {
        let mut command = self.apt("apt-cache");
        command.args(["show", "--no-all-versions", package]);
        let text = self.output(&mut command)?;
        Found::parse(&text).with_context(|| format!("apt knows no version of '{package}'"))
    }

    /// Downloads packages into `directory`, and returns the names of their files.
    ///
    /// # Errors
    /// apt could not.
    pub fn download(&self, packages: &[&str], directory: &Path) -> anyhow::Result<Vec<String>> {
        let listed =
            self.output(self.apt("apt-get").args(["download", "--print-uris"]).args(packages))?;
        let files = file_names(&listed);
        if files.iter().all(|file| directory.join(file).exists()) {
            return Ok(files);
        }
        self.run(self.apt("apt-get").arg("download").args(packages).current_dir(directory))?;
        Ok(files)
    }

    /// Downloads `package` of `suite` with the packages that it needs and that are not installed, and returns the names
    /// of their files.
    ///
    /// # Errors
    /// apt could not.
    pub fn download_with_needs(
        &self,
        package: &str,
        suite: &str,
        directory: &Path,
    ) -> anyhow::Result<Vec<String>> {
        let install = ["install", "--yes", "--no-install-recommends", "--no-remove"];
        let plan = |option: &str| {
            let mut command = self.apt("apt-get");
            let archives = format!("Dir::Cache::Archives={}", directory.display());
            command.args(["-o", &archives]).args(install).args(["-t", suite, option, package]);
            command
        };
        let files = file_names(&self.output(&mut plan("--print-uris"))?);
        fs::create_dir_all(directory.join("partial")).context("making a directory for apt")?;
        self.run(&mut plan("--download-only"))?;
        Ok(files)
    }
}

/// The file names of `--print-uris`: `'URI' FILE SIZE HASH`.
fn file_names(listed: &str) -> Vec<String> {
    let lines = listed.lines().filter(|line| line.starts_with('\''));
    lines.filter_map(|line| line.split_whitespace().nth(1)).map(str::to_owned).collect()
}

/// What the archive says of a package.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Its version.
    pub version: String,
    /// Names of packages that it depends on; the first of alternatives.
    pub depends: Vec<String>,
}

impl Found {
    fn parse(text: &str) -> Option<Self> {
        let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name));
        let names = field("Depends:").into_iter().flat_map(|list| list.split(','));
        let depends = names.filter_map(|one| one.split_whitespace().next()).map(str::to_owned);
        Some(Self { version: field("Version:")?.trim().to_owned(), depends: depends.collect() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mirror_is_the_one_that_the_sources_name() {
        let deb822 = "# http://old.example/debian\nTypes: deb\nURIs: http://a.example/debian\n\
                      Suites: bookworm\nSigned-By: /k/debian.gpg\n";
        let line = "deb [arch=amd64 signed-by=/k/other.gpg] http://b.example/debian/ trixie main\n";
        let found = |text| Mirror::named_in(text).map(|mirror| (mirror.uri, mirror.keyring));
        let pair = |uri: &str, keyring: &str| Some((uri.to_owned(), keyring.to_owned()));
        assert_eq!(found(deb822), pair("http://a.example/debian", "/k/debian.gpg"));
        assert_eq!(found(line), pair("http://b.example/debian/", "/k/other.gpg"));
        let plain = "deb http://c.example/debian bookworm main";
        assert_eq!(found(plain), pair("http://c.example/debian", DEFAULT_KEYRING));
        assert_eq!(found("deb http://c.example/ubuntu noble main"), None);
    }

    #[test]
    fn dependencies_are_names_without_versions() {
        let text = "Package: linux-image-amd64\nVersion: 7.3-1\n\
                    Depends: linux-image-7.3-amd64 (= 7.3-1), dracut | initramfs-tools\n";
        let found = Found::parse(text).expect("parses");
        assert_eq!(found.version, "7.3-1");
        assert_eq!(found.depends, ["linux-image-7.3-amd64", "dracut"]);
        assert_eq!(Found::parse("N: no such package"), None);
    }

    #[test]
    fn files_are_named_by_the_second_column() {
        let listed = "Reading...\n'http://a/x_1%3a2.deb' x_1%3a2_amd64.deb 12 MD5Sum:0\n";
        assert_eq!(file_names(listed), ["x_1%3a2_amd64.deb"]);
    }
}
