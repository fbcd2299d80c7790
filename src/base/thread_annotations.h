// These annotations say which lock guards what, in a form that Clang proves at compile time (-Wthread-safety). For
// other compilers they are empty. https://clang.llvm.org/docs/ThreadSafetyAnalysis.html says what each annotation
// means.
//
// The analysis goes function by function and knows a lock by the expression that names it. Where that is not enough (a
// lambda, which is a function of its own; locks of many objects, held in a loop), the code says what it knows by
// assume_held() of the lock, or a function is MG_NO_THREAD_SAFETY_ANALYSIS, with the reason beside it.
#pragma once

#ifdef __clang__
#define MG_THREAD_ANNOTATION(...) __attribute__((__VA_ARGS__))
#else
#define MG_THREAD_ANNOTATION(...)
#endif

// A class with this is a lock (a "capability", to Clang).
#define MG_CAPABILITY(name) MG_THREAD_ANNOTATION(capability(name))
// A class with this takes a lock when it begins, and releases it when it ends.
#define MG_SCOPED_CAPABILITY MG_THREAD_ANNOTATION(scoped_lockable)

// A member with the first is used with the lock held; for the second the same holds for what the pointer points to.
#define MG_GUARDED_BY(lock) MG_THREAD_ANNOTATION(guarded_by(lock))
#define MG_PT_GUARDED_BY(lock) MG_THREAD_ANNOTATION(pt_guarded_by(lock))

// The caller of a function with this holds the locks, and still does afterwards.
#define MG_REQUIRES(...) MG_THREAD_ANNOTATION(requires_capability(__VA_ARGS__))
// The caller of a function with this does not hold the locks, because the function takes them itself.
#define MG_EXCLUDES(...) MG_THREAD_ANNOTATION(locks_excluded(__VA_ARGS__))
// A function with one of these takes the locks, releases them, or takes them if it returns `result`.
#define MG_ACQUIRE(...) MG_THREAD_ANNOTATION(acquire_capability(__VA_ARGS__))
#define MG_RELEASE(...) MG_THREAD_ANNOTATION(release_capability(__VA_ARGS__))
#define MG_TRY_ACQUIRE(result, ...) MG_THREAD_ANNOTATION(try_acquire_capability(result __VA_OPT__(, ) __VA_ARGS__))
// After a call of a function with this, the analysis takes the lock to be held.
#define MG_ASSUMES_HELD(...) MG_THREAD_ANNOTATION(assert_capability(__VA_ARGS__))
// A function with this returns the lock.
#define MG_RETURN_CAPABILITY(lock) MG_THREAD_ANNOTATION(lock_returned(lock))

// The analysis cannot follow a function with this. A comment says why, and what holds instead.
#define MG_NO_THREAD_SAFETY_ANALYSIS MG_THREAD_ANNOTATION(no_thread_safety_analysis)
