//! What a sleeper can be woken for.

/// The sources of work of one kind of sleeper. [`sources!`](crate::sources) writes the implementation.
pub trait Sources: Copy + 'static {
    /// Every source once, in the order in which a sleeper looks at them.
    const ALL: &'static [Self];
}

/// The source of a sleeper that waits for one thing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct One;

impl Sources for One {
    const ALL: &'static [Self] = &[One];
}

/// Declares an enum of [`Sources`], so that no variant is missing from [`Sources::ALL`]: a sleeper looks at the
/// variants in the order of the declaration.
#[macro_export]
macro_rules! sources {
    ($(#[$meta:meta])* $vis:vis enum $name:ident { $($(#[$doc:meta])* $variant:ident),+ $(,)? }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        $vis enum $name { $($(#[$doc])* $variant),+ }

        impl $crate::Sources for $name {
            const ALL: &'static [Self] = &[$(Self::$variant),+];
        }
    };
}
