/* counts.c: adds 1 to counts[i] for each i in [first, last); and the sum of all. */
void count_up(_Atomic(long)* counts, int first, int last);
long sum(_Atomic(long)* counts, int n);

/* words.cpp: a container in shared memory, into which each processor puts a word; and the length of all. */
void* make_words(void);
void add_word(void* words, unsigned processor);
unsigned long letters(void* words);
