//! Names for connections: the dataplane's (handles) and the application's (cookies).

/// A connection, as the dataplane names it: flow group, slot and generation.
///
/// A handle of a connection that has ended never names another one by accident: the generation is
/// checked at each use, and a stale handle is answered with an error event. All bits are checked
/// before use, so an application may pass any.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub struct Handle(u64);

impl Handle {
    const SLOT_BITS: u32 = 24;
    const GENERATION_BITS: u32 = 28;
    /// Most connections of one flow group.
    pub const MAX_SLOTS: u32 = 1 << Self::SLOT_BITS;
    /// Generations before they repeat.
    pub const GENERATIONS: u32 = 1 << Self::GENERATION_BITS;

    /// Composes a handle. Bits of `slot` and `generation` beyond their fields are cut.
    #[inline]
    pub const fn new(group: u16, slot: u32, generation: u32) -> Self {
        let slot = (slot & (Self::MAX_SLOTS - 1)) as u64;
        let generation = (generation & (Self::GENERATIONS - 1)) as u64;
        let group = (group & 0xfff) as u64;
        Self(group << 52 | generation << Self::SLOT_BITS | slot)
    }

    /// The flow group that owns the connection.
    #[inline]
    pub const fn group(self) -> u16 {
        (self.0 >> 52) as u16
    }

    /// The slot in the flow group.
    #[inline]
    pub const fn slot(self) -> u32 {
        self.0 as u32 & (Self::MAX_SLOTS - 1)
    }

    /// The generation of the slot.
    #[inline]
    pub const fn generation(self) -> u32 {
        (self.0 >> Self::SLOT_BITS) as u32 & (Self::GENERATIONS - 1)
    }

    /// The handle as a word, for records and logs.
    pub const fn to_bits(self) -> u64 {
        self.0
    }

    /// A handle from a word that an application passed. Nothing is promised about it.
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }
}

impl core::fmt::Display for Handle {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{}:{}#{}", self.group(), self.slot(), self.generation())
    }
}

/// The application's own name for a connection: opaque to the dataplane, returned with every
/// event, so that the application finds its state without a look-up (IX §4.3).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, PartialOrd, Ord)]
pub struct Cookie(pub u64);
