/* Calls a function with a name that the C library has, too: own_index.c has the one that is called. */
char* index(const char* text, int character);

char* call_index(const char* text) {
  return index(text, 'x');
}
