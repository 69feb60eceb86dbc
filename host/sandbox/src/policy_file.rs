//! An operator's policy for an application, as TOML.
//!
//! ```toml
//! default = "deny"        # what happens to calls in neither list: "allow" or "deny"
//! allow = ["read", "write", "futex", "exit_group"]
//! deny = []
//! refusal = "error"       # or "kill"
//! with_default_list = true
//! ```
//!
//! An application's [default list](SyscallPolicy::application) refuses what it refuses beside this one, unless the file
//! says `with_default_list = false`.

use std::fs::OpenOptions;
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use serde::Deserialize;

use crate::SandboxError;
use crate::policy::{Refusal, SyscallPolicy};

/// No list of all system calls is half as long.
const LONGEST_FILE_BYTES: u64 = 64 * 1024;
const A_POLICY_IS: &str = "a policy is default = \"allow\" or \"deny\", and optionally allow = [...], deny = [...], \
                           refusal = \"error\" or \"kill\"";

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Default {
    Allow,
    Deny,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    default: Default,
    #[serde(default)]
    allow: Vec<String>,
    #[serde(default)]
    deny: Vec<String>,
    #[serde(default)]
    refusal: Refusal,
    with_default_list: Option<bool>,
}

impl SyscallPolicy {
    /// Reads a policy. Names are without regard to the processor; calls named are allowed or denied
    /// whatever their arguments.
    ///
    /// # Errors
    /// The text is no policy, names what is no system call, or one twice.
    pub fn from_toml(text: &str) -> Result<Self, SandboxError> {
        let file: File = toml::from_str(text)
            .map_err(|found| SandboxError::refused("read the policy", found, A_POLICY_IS))?;
        if let Some(name) = file.allow.iter().find(|name| file.deny.contains(name)) {
            return Err(SandboxError::Refused(format!(
                "`{name}` stands in `allow` and in `deny`: take it out of one of them"
            )));
        }
        let policy = match file.default {
            Default::Allow => Self::allow_all(),
            Default::Deny => Self::deny_all(),
        };
        policy
            .alone(file.with_default_list == Some(false))
            .refusing_with(file.refusal)
            .allow(file.allow.iter().map(String::as_str))?
            .deny(file.deny.iter().map(String::as_str))
    }

    /// Reads a policy from a regular file of at most 64 KiB.
    ///
    /// # Errors
    /// The file cannot be read, and those of [`from_toml`](Self::from_toml).
    pub fn from_file(path: &Path) -> Result<Self, SandboxError> {
        let fail = |found: String| {
            let tried = format!("read the policy file {path:?}");
            SandboxError::refused(&tried, found, "name a readable regular file")
        };
        // Non-blocking: the open of a named pipe would wait for a writer for ever.
        let file = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC)
            .open(path)
            .map_err(|e| fail(e.to_string()))?;
        let about = file.metadata().map_err(|e| fail(e.to_string()))?;
        if !about.is_file() {
            return Err(fail("it is not a regular file".into()));
        }
        let mut text = String::new();
        file.take(LONGEST_FILE_BYTES + 1)
            .read_to_string(&mut text)
            .map_err(|e| fail(e.to_string()))?;
        if text.len() as u64 > LONGEST_FILE_BYTES {
            return Err(fail(format!("it is longer than {LONGEST_FILE_BYTES} bytes")));
        }
        Self::from_toml(&text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(text: &str) -> String {
        SyscallPolicy::from_toml(text).expect_err("no policy").to_string()
    }

    #[test]
    fn a_policy_is_read() {
        let policy =
            SyscallPolicy::from_toml("default = \"deny\"\nallow = [\"read\", \"futex\"]\n");
        let policy = policy.unwrap();
        assert!(policy.allows("read") && policy.allows("futex") && !policy.allows("write"));
        assert_eq!(policy.refusal(), Refusal::Error);
        assert!(!policy.is_alone());
        let alone = SyscallPolicy::from_toml("default = \"allow\"\nwith_default_list = false");
        assert!(alone.unwrap().is_alone());
        let policy =
            SyscallPolicy::from_toml("default = \"allow\"\ndeny = [\"bpf\"]\nrefusal = \"kill\"");
        let policy = policy.unwrap();
        assert!(policy.allows("read") && !policy.allows("bpf"));
        assert_eq!(policy.refusal(), Refusal::Kill);
        assert!(policy.compile(None).unwrap().len() < 20);
    }

    #[test]
    #[cfg_attr(miri, ignore = "compares names with all others, nothing of it unsafe")]
    fn a_mistake_is_named_with_its_cure() {
        let unknown = said("default = \"deny\"\nallow = [\"opnat\"]");
        assert!(unknown.contains("`opnat` in `allow`"), "{unknown}");
        assert!(unknown.contains("did you mean `openat`?"), "{unknown}");
        let unknown = said("default = \"allow\"\ndeny = [\"everything_bad\"]");
        assert!(unknown.contains("`deny`") && unknown.contains("man 2"), "{unknown}");
        let both = said("default = \"deny\"\nallow = [\"read\"]\ndeny = [\"read\"]");
        assert!(both.contains("`read`") && both.contains("take it out"), "{both}");
        let default = said("default = \"ask\"");
        assert!(default.contains("line 1") && default.contains("ask"), "{default}");
        let missing = said("allow = []");
        assert!(missing.contains("`default`"), "{missing}");
        let list = said("default = \"deny\"\nwith_default_list = \"no\"");
        assert!(list.contains("line 2") && list.contains("boolean"), "{list}");
        let field = said("default = \"deny\"\nalow = []");
        assert!(field.contains("alow"), "{field}");
        assert!(said("default = ").contains("policy is default"));
    }

    #[test]
    #[cfg_attr(miri, ignore = "opens without waiting")]
    fn what_is_no_file_is_refused_at_once() {
        for path in ["/dev/zero", "/", "/no/such/policy.toml"] {
            let found = SyscallPolicy::from_file(Path::new(path)).expect_err(path).to_string();
            assert!(found.contains(path) && found.contains("name a readable"), "{found}");
        }
        let long = std::env::temp_dir().join(format!("long-policy-{}", std::process::id()));
        std::fs::write(&long, "#".repeat(LONGEST_FILE_BYTES as usize + 1)).unwrap();
        let found = SyscallPolicy::from_file(&long).expect_err("too long").to_string();
        std::fs::remove_file(&long).unwrap();
        assert!(found.contains("longer than"), "{found}");
    }
}
