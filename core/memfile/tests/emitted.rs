//! The machine code of copies out of shared memory: each shared byte is loaded once, whatever follows.
//!
//! What the source says is volatile; that the compiler does as it says, and without a detour, is read from what it
//! emits for a copy that is checked, summed and used again.
#![cfg(all(target_arch = "x86_64", not(miri)))]

use std::path::Path;
use std::process::Command;

/// Compiles functions that use the module with optimisation, into files of this name; answers the assembly.
fn assembly(name: &str) -> String {
    let module = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/unsafe_copy.rs");
    let source = format!(
        r#"
        #![allow(dead_code)]
        #[path = {module:?}]
        mod unsafe_copy;
        use std::ptr::NonNull;
        /// Checks a word of the copy, sums all of them, and uses the word again.
        #[unsafe(no_mangle)]
        pub unsafe fn checked_and_summed(from: NonNull<u8>, to: &mut [u8; 64]) -> Option<u64> {{
            // SAFETY: nothing calls it: its code is read.
            unsafe {{ unsafe_copy::copy_array_from_shared(from, to) }};
            let word = |at: usize| u64::from_ne_bytes(to[at..at + 8].try_into().unwrap());
            if word(8) > 2048 {{ return None }}
            let sum = (0..8).fold(0u64, |sum, at| sum.rotate_left(7) ^ word(8 * at));
            Some(sum / word(8).max(1))
        }}
        #[unsafe(no_mangle)]
        pub unsafe fn of_any_length(from: NonNull<u8>, to: &mut [u8]) {{
            // SAFETY: as above.
            unsafe {{ unsafe_copy::copy_from_shared(from, to) }}
        }}
        "#
    );
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let (probe, emitted) = (folder.join(format!("{name}.rs")), folder.join(format!("{name}.s")));
    std::fs::write(&probe, source).expect("a folder for tests");
    let compiler = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let ended = Command::new(compiler)
        .args(["--edition", "2024", "-O", "-C", "debuginfo=0", "-C", "target-cpu=x86-64"])
        .args(["--crate-type", "lib", "--emit", "asm", "-o"])
        .args([&emitted, &probe])
        .output()
        .expect("the compiler starts");
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    std::fs::read_to_string(&emitted).expect("assembly")
}

/// The instructions of a function.
fn body<'a>(assembly: &'a str, name: &str) -> Vec<&'a str> {
    let from = assembly.find(&format!("\n{name}:")).expect("a function of that name");
    let body = &assembly[from..];
    let body = &body[..body.find(".cfi_endproc").or(body.find(".Lfunc_end")).expect("its end")];
    body.lines().map(str::trim).filter(|line| !line.starts_with(['.', '#'])).collect()
}

#[test]
fn a_copy_that_is_checked_and_summed_is_loaded_once() {
    let assembly = assembly("emitted_checked");
    // The first argument, the shared address, comes in this register.
    let body = body(&assembly, "checked_and_summed");
    let loads: Vec<_> = body.iter().filter(|line| line.contains("(%rdi")).collect();
    assert_eq!(loads.len(), 4, "{body:#?}");
    for at in ["(%rdi)", " 16(%rdi)", " 32(%rdi)", " 48(%rdi)"] {
        let at = at.trim();
        let of = loads.iter().filter(|line| {
            let operand = line.split_whitespace().nth(1).unwrap_or_default();
            operand.trim_end_matches(',') == at && line.starts_with("mov")
        });
        assert_eq!(of.count(), 1, "{at}: {loads:?}");
    }
    // No second name of that address, from which it could be loaded again.
    assert!(!body.iter().any(|line| line.contains("%rdi,")), "{body:#?}");
}

#[test]
fn a_copy_of_any_length_takes_no_call_and_no_detour() {
    let assembly = assembly("emitted_any_length");
    let body = body(&assembly, "of_any_length");
    assert!(!body.iter().any(|line| line.starts_with("call")), "{body:#?}");
    assert!(!body.iter().any(|line| line.contains("%rsp")), "by way of the stack: {body:#?}");
    assert!(body.iter().any(|line| line.starts_with("movups") && line.contains("(%rdi")));
}
