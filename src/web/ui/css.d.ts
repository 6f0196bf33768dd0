/** The bundler makes a file of its own of an imported style. */
declare module '*.css';
