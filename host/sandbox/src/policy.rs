//! Which system calls a process may make: plain data, compiled to a seccomp program.
//!
//! ```
//! use sandbox::{Refusal, SyscallPolicy};
//! let policy = SyscallPolicy::dataplane().refusing_with(Refusal::Kill);
//! assert!(policy.allows("futex") && !policy.allows("openat"));
//! policy.compile(None)?;
//! # Ok::<(), sandbox::SandboxError>(())
//! ```
//!
//! A rule is by name, with tests of arguments where the kernel hands them in registers (a filter cannot
//! follow a pointer). The program begins with two groups of instructions of our own: calls of the
//! x32 interface do not exist, since their numbers would pass by a list of denials, and `clone3`, whose
//! flags stand behind a pointer, is answered with "no such call", on which C libraries fall back to `clone`.

use std::collections::BTreeMap;

use rustix::io::Errno;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch, sock_filter,
};
use serde::Deserialize;

use crate::error::{COMPILE, SHORTEN, SandboxError};
use crate::syscalls::{self, Known};

/// What happens to a call that no rule allows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Refusal {
    /// It fails with `EPERM`; the process goes on.
    #[default]
    Error,
    /// The whole process is killed (`SIGSYS`).
    Kill,
}

/// A test of one argument of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArgTest {
    /// Argument `.0`, as 32 bits, is `.1`. For what the kernel itself reads as 32 bits.
    Is(u8, u32),
    /// Argument `.0`, as 32 bits, is another than `.1`.
    IsNot(u8, u32),
    /// Argument `.0`, as 64 bits, is zero: a null pointer.
    IsNull(u8),
    /// Argument `.0` has none of the bits `.1`.
    Without(u8, u32),
    /// Argument `.0` has all of the bits `.1`.
    With(u8, u32),
    /// The operation of `futex` is this one, within the process or between processes, by either clock.
    FutexIs(u32),
    /// Argument `.0` is the process's own id. Where that is not known yet (a filter made before the
    /// process is), the test is left out.
    IsOwnPid(u8),
}

/// The calls of one name that are allowed, or denied: those for which all tests of one of `cases` hold, or all calls where
/// there is no case.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Rule {
    allows: bool,
    cases: Vec<Vec<ArgTest>>,
}

/// A list of system calls, and what is done with all others. See the module for how it is enforced.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SyscallPolicy {
    allow_by_default: bool,
    refusal: Refusal,
    /// No other list is to apply beside it.
    is_alone: bool,
    rules: BTreeMap<&'static str, Rule>,
}

impl SyscallPolicy {
    /// Nothing is allowed but what is added.
    pub fn deny_all() -> Self {
        Self::default()
    }

    /// Everything is allowed but what is denied by name. Weaker than it looks: one effect has many calls
    /// (`open`, `openat`, `openat2`, `io_uring_setup`), and new kernels bring more.
    pub fn allow_all() -> Self {
        Self { allow_by_default: true, ..Self::default() }
    }

    /// What happens to a refused call.
    pub fn refusing_with(mut self, refusal: Refusal) -> Self {
        self.refusal = refusal;
        self
    }

    pub(crate) fn alone(mut self, is_alone: bool) -> Self {
        self.is_alone = is_alone;
        self
    }

    /// Whether whoever wrote the list wants no default list to apply beside it.
    pub fn is_alone(&self) -> bool {
        self.is_alone
    }

    /// Allows calls by name, whatever their arguments.
    ///
    /// # Errors
    /// A name that no Linux has.
    pub fn allow<'a>(self, names: impl IntoIterator<Item = &'a str>) -> Result<Self, SandboxError> {
        let rule = |policy: Self, name| Ok(policy.rule(known(name, "allow")?, true, &[]));
        names.into_iter().try_fold(self, rule)
    }

    /// Denies calls by name.
    ///
    /// # Errors
    /// A name that no Linux has.
    pub fn deny<'a>(self, names: impl IntoIterator<Item = &'a str>) -> Result<Self, SandboxError> {
        let rule = |policy: Self, name| Ok(policy.rule(known(name, "deny")?, false, &[]));
        names.into_iter().try_fold(self, rule)
    }

    /// Allows, or denies, a call where every one of `tests` holds, besides what its rule covers of it already.
    pub(crate) fn rule(mut self, name: &'static str, allows: bool, tests: &[ArgTest]) -> Self {
        match self.rules.get_mut(name).filter(|rule| rule.allows == allows && !tests.is_empty()) {
            Some(rule) if rule.cases.is_empty() => {}
            Some(rule) => rule.cases.push(tests.to_vec()),
            None => {
                let cases = if tests.is_empty() { Vec::new() } else { vec![tests.to_vec()] };
                self.rules.insert(name, Rule { allows, cases });
            }
        }
        self
    }

    /// Allows more, whatever was said before: for what must work for the program to start at all.
    pub(crate) fn widen(self, name: &'static str, tests: &[ArgTest]) -> Self {
        let tests: &[ArgTest] = if self.allow_by_default { &[] } else { tests };
        self.rule(name, true, tests)
    }

    /// Whether the call is allowed, for some arguments at least.
    pub fn allows(&self, name: &str) -> bool {
        let rule = self.rules.get(name);
        rule.map_or(self.allow_by_default, |rule| rule.allows || !rule.cases.is_empty())
    }

    /// How refused calls are answered.
    pub fn refusal(&self) -> Refusal {
        self.refusal
    }

    /// The seccomp program for this processor. `own_pid` resolves [`ArgTest::IsOwnPid`].
    ///
    /// # Errors
    /// The lists are too long for the kernel, or this is no processor that we know.
    pub fn compile(&self, own_pid: Option<u32>) -> Result<BpfProgram, SandboxError> {
        let arch = TargetArch::try_from(std::env::consts::ARCH)?;
        let refuse = match self.refusal {
            Refusal::Error => SeccompAction::Errno(Errno::PERM.raw_os_error() as u32),
            Refusal::Kill => SeccompAction::KillProcess,
        };
        // The filter compares with one list only: the calls that differ from the default.
        let mut listed = BTreeMap::new();
        for (name, rule) in &self.rules {
            let Some((_, Known::Number(number))) = syscalls::look_up(name) else { continue };
            if rule.allows != self.allow_by_default {
                listed.insert(number, rules_of(&rule.cases, own_pid)?);
            }
        }
        let (otherwise, matched) = match self.allow_by_default {
            true => (SeccompAction::Allow, refuse),
            false => (refuse, SeccompAction::Allow),
        };
        let mut program = preamble(self.answers_clone3());
        let filter = SeccompFilter::new(listed, otherwise, matched, arch)?;
        program.extend(BpfProgram::try_from(filter)?);
        // BPF_MAXINSNS of linux/bpf_common.h.
        const MOST_INSTRUCTIONS: usize = 4096;
        if program.len() > MOST_INSTRUCTIONS {
            let found = format!("{} instructions, over {MOST_INSTRUCTIONS}", program.len());
            return Err(SandboxError::refused(COMPILE, found, SHORTEN));
        }
        Ok(program)
    }

    /// `clone3` has its flags behind a pointer: where `clone` is not free, it must not be either.
    fn answers_clone3(&self) -> bool {
        let free = |name| {
            let rule = self.rules.get(name);
            rule.map_or(self.allow_by_default, |rule| rule.allows && rule.cases.is_empty())
        };
        !(free("clone") && free("clone3"))
    }
}

/// The tests as the compiler's rules. No rules mean "whatever the arguments".
fn rules_of(
    cases: &[Vec<ArgTest>],
    own_pid: Option<u32>,
) -> Result<Vec<SeccompRule>, SandboxError> {
    let mut rules = Vec::with_capacity(cases.len());
    for case in cases {
        let conditions = case.iter().filter_map(|test| condition_of(*test, own_pid));
        let conditions: Vec<SeccompCondition> = conditions.collect::<Result<_, _>>()?;
        if conditions.is_empty() {
            return Ok(Vec::new());
        }
        rules.push(SeccompRule::new(conditions)?);
    }
    Ok(rules)
}

fn condition_of(
    test: ArgTest,
    own_pid: Option<u32>,
) -> Option<Result<SeccompCondition, seccompiler::BackendError>> {
    use SeccompCmpArgLen::{Dword, Qword};
    let (arg, length, operator, value) = match test {
        ArgTest::Is(arg, value) => (arg, Dword, SeccompCmpOp::Eq, value),
        ArgTest::IsNot(arg, value) => (arg, Dword, SeccompCmpOp::Ne, value),
        ArgTest::IsNull(arg) => (arg, Qword, SeccompCmpOp::Eq, 0),
        ArgTest::Without(arg, bits) => (arg, Dword, SeccompCmpOp::MaskedEq(bits.into()), 0),
        ArgTest::With(arg, bits) => (arg, Dword, SeccompCmpOp::MaskedEq(bits.into()), bits),
        ArgTest::FutexIs(operation) => {
            let options = (libc::FUTEX_PRIVATE_FLAG | libc::FUTEX_CLOCK_REALTIME) as u64;
            let fixed = u64::from(u32::MAX) & !options;
            (1, Dword, SeccompCmpOp::MaskedEq(fixed), operation)
        }
        ArgTest::IsOwnPid(arg) => (arg, Dword, SeccompCmpOp::Eq, own_pid?),
    };
    Some(SeccompCondition::new(arg, length, operator, value.into()))
}

/// What stands before the compiled rules. Jumps are relative, so the two need no fitting together; the
/// compiled part looks at the processor's interface (`arch`) itself.
fn preamble(answer_clone3: bool) -> BpfProgram {
    // linux/bpf_common.h: load a word of the call's description; jumps; return.
    const LOAD: u16 = 0x20;
    const JUMP_IF_EQUAL: u16 = 0x15;
    const JUMP_IF_AT_LEAST: u16 = 0x35;
    const RETURN: u16 = 0x06;
    // `nr` of struct seccomp_data.
    const NUMBER: u32 = 0;
    // asm/unistd.h: __X32_SYSCALL_BIT. No other processor has numbers as high.
    const X32: u32 = 0x4000_0000;
    let op = |code, jt, jf, k| sock_filter { code, jt, jf, k };
    let absent = libc::SECCOMP_RET_ERRNO | Errno::NOSYS.raw_os_error() as u32;
    let mut program =
        vec![op(LOAD, 0, 0, NUMBER), op(JUMP_IF_AT_LEAST, 0, 1, X32), op(RETURN, 0, 0, absent)];
    if answer_clone3 {
        program.push(op(JUMP_IF_EQUAL, 0, 1, libc::SYS_clone3 as u32));
        program.push(op(RETURN, 0, 0, absent));
    }
    program
}

fn known(name: &str, list: &'static str) -> Result<&'static str, SandboxError> {
    if let Some((name, _)) = syscalls::look_up(name) {
        return Ok(name);
    }
    let names = "; names are those of section 2 of the manual (`man 2 syscalls`)".to_owned();
    let suggested = syscalls::nearest(name).map(|name| format!("; did you mean `{name}`?"));
    let (shown, suggestion): (String, _) =
        (name.chars().take(64).collect(), suggested.unwrap_or(names));
    Err(SandboxError::Refused(format!("`{shown}` in `{list}` is not a system call{suggestion}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clone3_is_left_where_clone_is_free_only() {
        let answered = |policy: &SyscallPolicy| policy.answers_clone3();
        assert!(answered(&SyscallPolicy::dataplane()));
        assert!(answered(&SyscallPolicy::deny_all()));
        assert!(!answered(&SyscallPolicy::allow_all()));
        // Denied by its older name, it must not come in by the newer one.
        assert!(answered(&SyscallPolicy::allow_all().deny(["clone"]).unwrap()));
        assert!(!answered(&SyscallPolicy::deny_all().allow(["clone", "clone3"]).unwrap()));
    }

    #[test]
    #[cfg_attr(miri, ignore = "two thousand rules, nothing of them unsafe")]
    fn a_list_too_long_for_the_kernel_is_refused() {
        let mut policy = SyscallPolicy::deny_all();
        for i in 0..2000 {
            policy = policy.widen("read", &[ArgTest::Is(0, i)]);
        }
        let found = policy.compile(None).expect_err("too long").to_string();
        assert!(found.contains("shorten"), "{found}");
        let all = SyscallPolicy::deny_all().allow(syscalls::names()).unwrap();
        assert!(all.compile(None).is_ok());
    }

    #[test]
    fn rules_join_and_do_not_widen_a_denial() {
        let tests = [ArgTest::Is(0, 1)];
        let policy = SyscallPolicy::deny_all().allow(["read"]).unwrap();
        assert_eq!(policy.clone().widen("read", &tests), policy);
        let denied = SyscallPolicy::allow_all().deny(["read"]).unwrap();
        assert_eq!(denied.clone().rule("read", false, &tests), denied);
        let found = SyscallPolicy::deny_all().allow(["reed"]).expect_err("no call").to_string();
        assert!(found.contains("did you mean `read`"), "{found}");
    }
}
