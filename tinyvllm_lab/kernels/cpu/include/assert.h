// assert.h: a device assert ends the launch with a report; the C library's would end the process.
// No include guard, like the original: the last #include decides.
#undef assert
#ifdef NDEBUG
#define assert(condition) ((void)0)
#else
#define assert(condition)                                                                          \
    ((condition) ? (void)0 : ::simt_trap("assert(" #condition ")", __FILE__, __LINE__))
#endif
