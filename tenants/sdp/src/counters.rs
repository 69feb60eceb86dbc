//! What is counted: per tenant and per core, each line written by one core, read by anybody at any
//! time.

/// Declares a struct of counts, and the counters of them: with one writer.
#[doc(hidden)]
#[macro_export]
macro_rules! counters {
    ($(#[$meta:meta])* $counts:ident, $counters:ident {
        $($(#[$doc:meta])* $name:ident),+ $(,)?
    }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
        pub struct $counts {
            $($(#[$doc])* pub $name: u64,)+
        }

        impl $counts {
            /// Names and values, for who prints them.
            pub fn entries(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($name), self.$name)),+].into_iter()
            }
        }

        impl std::ops::AddAssign for $counts {
            fn add_assign(&mut self, other: Self) {
                $(self.$name += other.$name;)+
            }
        }

        /// Counters with one writer, to be looked at while it works.
        #[derive(Debug, Default)]
        #[repr(align(128))]
        pub struct $counters {
            $($name: std::sync::atomic::AtomicU64,)+
        }

        impl $counters {
            /// What was counted so far.
            pub fn read(&self) -> $counts {
                $counts { $($name: self.$name.load(std::sync::atomic::Ordering::Relaxed),)+ }
            }

            /// Adds. By the one writer: loads and stores, no read-modify-writes.
            #[inline]
            pub fn add(&self, more: &$counts) {
                use std::sync::atomic::Ordering::Relaxed;
                $(if more.$name != 0 {
                    let sum = self.$name.load(Relaxed).wrapping_add(more.$name);
                    self.$name.store(sum, Relaxed);
                })+
            }
        }
    };
}

counters! {
    /// Counts since the tenant joined, or since the core started.
    Counts, Counters {
        /// Requests that were served.
        served,
        /// Bytes of requests that were served.
        bytes_in,
        /// Bytes of replies.
        bytes_out,
        /// Visits of a queue.
        visits,
        /// Visits that found no request, though something had said so.
        spurious,
        /// Things that an honest tenant's library never writes: a doorbell that its queue does not bear
        /// out, a length beyond its slot, completions consumed that it did not get.
        lies,
        /// Requests that were answered with a refusal, as their length was impossible.
        refused,
        /// Visits that ended because the tenant was over its rate.
        deferred,
        /// Visits that ended because the tenant left no room for a completion.
        no_room,
        /// Times that the tenant was woken to take completions.
        wakes,
        /// Times that a core slept (cores only).
        sleeps,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_added_is_read() {
        let counters = Counters::default();
        let once = Counts { served: 2, bytes_in: 64, ..Counts::default() };
        counters.add(&once);
        counters.add(&once);
        let mut twice = once;
        twice += once;
        assert_eq!(counters.read(), twice);
        let named: Vec<_> = twice.entries().filter(|(_, value)| *value > 0).collect();
        assert_eq!(named, [("served", 4), ("bytes_in", 128)]);
    }
}
